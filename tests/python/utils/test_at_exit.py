"""What a process does when it ends."""

import subprocess
import sys

import pytest

PROGRAM = """
from tfdistr.utils import at_exit

def say(text):
    return lambda: print(text)

first, last, never = say("first"), say("last"), say("never")
for function in (last, first, never):
    at_exit.register(function)
at_exit.unregister(never)
"""


def printed(code: str) -> list[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.split()


def test_the_last_registered_is_the_first_to_be_called():
    assert printed(PROGRAM + "print('end')") == ["end", "first", "last"]


def test_each_is_called_once():
    assert printed(PROGRAM + "at_exit.run_at_exit(); at_exit.run_at_exit(); print('end')") == [
        "first",
        "last",
        "end",
    ]


@pytest.mark.parametrize("end", ["", "at_exit.run_at_exit()"])
def test_a_function_at_exit_can_fail_the_process_after_all_others(end):
    code = f"{PROGRAM}\nat_exit.register(at_exit.fail)\n{end}"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout.split()) == (1, ["first", "last"])
