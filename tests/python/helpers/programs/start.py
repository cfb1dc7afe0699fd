"""A worker that starts and says what went wrong. Usage: start.py SECONDS"""

import sys
import time

import tfdistr

began = time.monotonic()
try:
    tfdistr.MultiWorkerMirroredStrategy(start_timeout=float(sys.argv[1]))
except tfdistr.ClusterStartError as error:
    print(f"{error}\nafter {time.monotonic() - began:.1f} s")
