"""Interrupts at any moment of code that holds them back again and again: says how many did not come.

In R: reticulate::py_run_file("many_interrupts.py").
"""

import os
import select
import subprocess
import sys

from tfdistr.utils.interrupts import uninterrupted

COUNT = 300
# Each interrupt follows the answer to the one before. The end of its output says that all were sent.
SENDER = """
import os, random, select, signal, sys, time

os.read(0, 1)  # until the loop runs
missed = 0
for _ in range(int(sys.argv[2])):
    time.sleep(random.random() * 0.002)
    os.kill(int(sys.argv[1]), signal.SIGINT)
    if select.select([0], [], [], 1.0)[0]:
        os.read(0, 1)
    else:
        missed += 1
print("MISSED:", missed)
"""


def main() -> None:
    answered, answers = os.pipe()
    said, says = os.pipe()
    arguments = [sys.executable, "-c", SENDER, str(os.getpid()), str(COUNT)]
    subprocess.Popen(arguments, stdin=answered, stdout=says, start_new_session=True)
    os.close(says)
    inside, came, times = False, True, 0
    while True:
        try:
            while True:
                if came:
                    came = False
                    os.write(answers, b"x")
                times += 1
                if times % 1000 == 0 and select.select([said], [], [], 0)[0]:
                    print(os.read(said, 100).decode(), end="", flush=True)
                    return
                with uninterrupted():
                    inside = True
                    inside = False
        except KeyboardInterrupt:
            if inside:
                print("INSIDE", flush=True)
            came = True


main()
