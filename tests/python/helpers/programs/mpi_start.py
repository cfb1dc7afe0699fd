"""One rank, which comes to the start of MPI, or does not.

Usage: mpi_start.py come|late|stay|end|sleep SECONDS   (which is start_timeout)
"""

import sys
import time

from tfdistr.collectives.mpi.world import finish, world

what, seconds = sys.argv[1:3]
if what == "end":
    sys.exit("no such file: pictures.zip")
if what == "sleep":
    time.sleep(600)
if what == "late":
    time.sleep(3)
began, used = time.monotonic(), time.process_time()
size = world(float(seconds)).Get_size()
took, used = time.monotonic() - began, time.process_time() - used
print(f"{what}: {size} ranks after {took:.2f} s, {used:.2f} s of them on a core", flush=True)
if what == "stay":
    time.sleep(600)
finish()
