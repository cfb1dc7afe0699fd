"""A process whose main thread makes no steps any more. Usage: watched.py WHERE TIMEOUT"""

import ctypes
import signal
import sys
import time
from types import SimpleNamespace

from tfdistr.errors import StepTimeoutError
from tfdistr.strategies.worker_strategy import OneProcessStrategy
from tfdistr.training import watchdog
from tfdistr.utils import processes

watchdog.REACTION, watchdog.LAST_RESORT = 3.0, 2.0
WHERE, TIMEOUT = sys.argv[1], float(sys.argv[2])
if WHERE == "session":
    processes.lives_on(True)


def stuck() -> None:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        if WHERE == "steps" and time.monotonic() < until - 30 + 4 * TIMEOUT:
            watchdog.progress()
        elif WHERE == "steps":
            return
        try:
            time.sleep(0.1)
        except KeyboardInterrupt:
            if WHERE != "stubborn":
                raise


class Waits(OneProcessStrategy):
    """Worker 1, which waits for worker 0; that one holds the interpreter's lock, and has its last resort."""

    worker_index, num_workers = 1, 2
    collectives = SimpleNamespace(behind=lambda: [0], moved_on=lambda: None)


WORKER = None
if WHERE == "waits":
    WORKER, watchdog.LAST_RESORT = Waits(), 6.0
if WHERE == "ignores":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
watchdog.add_failure_listener(lambda error, text: print(f"last words: {text.splitlines()[0]}", flush=True))
try:
    with watchdog.Watchdog(TIMEOUT, WORKER):
        ctypes.PyDLL(None).sleep(30) if WHERE == "in C with the lock" else stuck()
    print("ended well")
except StepTimeoutError as error:
    print(f"raised: {error}")
