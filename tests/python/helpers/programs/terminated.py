"""A worker of a cluster that gets SIGTERM outside of a training: python terminated.py FOLDER."""

import os
import signal
import sys
import time
from pathlib import Path

import tfdistr

strategy = tfdistr.MultiWorkerMirroredStrategy()
strategy.barrier("all", 60)
print("joined", flush=True)
# The barrier ends at one worker before the other: none may end before both have joined.
folder = Path(sys.argv[1])
(folder / str(strategy.worker_index)).touch()
while len(list(folder.iterdir())) < strategy.num_workers:
    time.sleep(0.01)
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(10)
print("lives on", flush=True)
