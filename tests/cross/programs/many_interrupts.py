"""Interrupts at any moment of code that holds them back again and again: says how many did not come.

In R: reticulate::py_run_file("many_interrupts.py").
"""

import os
import subprocess
import sys

from tfdistr._utils.uninterrupted import uninterrupted

COUNT = 300
SENDER = """
import os, random, select, signal, sys, time

missed = 0
for _ in range(int(sys.argv[2])):
    time.sleep(random.random() * 0.002)
    os.kill(int(sys.argv[1]), signal.SIGINT)
    if select.select([0], [], [], 1.0)[0]:
        os.read(0, 1)
    else:
        missed += 1
print("MISSED:", missed, flush=True)
"""


def main() -> None:
    reads, writes = os.pipe()
    arguments = [sys.executable, "-c", SENDER, str(os.getpid()), str(COUNT)]
    sender = subprocess.Popen(arguments, stdin=reads, start_new_session=True)
    inside, times = False, 0
    while True:
        try:
            while True:
                times += 1
                if times % 1000 == 0 and sender.poll() is not None:
                    return
                with uninterrupted():
                    inside = True
                    inside = False
        except KeyboardInterrupt:
            if inside:
                print("INSIDE", flush=True)
            os.write(writes, b"x")


main()
