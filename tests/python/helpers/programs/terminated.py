"""A worker of a cluster that gets SIGTERM outside of a training: python terminated.py."""

from __future__ import annotations

import os
import signal
import time

import tfdistr

tfdistr.MultiWorkerMirroredStrategy().barrier("all", 60)
print("joined", flush=True)
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(10)
print("lives on", flush=True)
