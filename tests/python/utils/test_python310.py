"""What takes the place of names that Python 3.10 does not have does the same as they do."""

from __future__ import annotations

import runpy
import subprocess
import sys

import pytest
from paths import ROOT

FIND = runpy.run_path(str(ROOT / "tools" / "versions.py"))["find_python"]
CODE = f"""
import asyncio, runpy, sys, types
sys.modules.setdefault("tomli", types.ModuleType("tomli"))
names = types.SimpleNamespace(**runpy.run_path({str(ROOT / "python/tfdistr/utils/python310.py")!r}))

async def wait(seconds, limit):
    async with names.timeout(limit):
        await asyncio.sleep(seconds)

async def cancelled():
    task = asyncio.create_task(wait(9, 9))
    await asyncio.sleep(0.01)
    task.cancel()
    await task

def outcome(work):
    try:
        asyncio.run(work)
    except BaseException as error:
        return type(error).__name__

error = ValueError("x")
names.add_note(error, "a")
names.add_note(error, "b")
print(outcome(wait(9, 0.01)), outcome(wait(0, 9)), outcome(cancelled()), error.__notes__)
"""


@pytest.mark.parametrize("python", [sys.executable, "3.10"])
def test_it_is_as_in_python_311(python):
    program = python if python == sys.executable else FIND(python)
    if program is None:
        pytest.skip("no Python 3.10 on this machine")
    ended = subprocess.run([program, "-c", CODE], capture_output=True, text=True, timeout=60)
    assert ended.stdout == "TimeoutError None CancelledError ['a', 'b']\n", ended.stderr
