"""One rank, which comes to the start of MPI, or does not.

Usage: mpi_start.py come|stay|end|sleep SECONDS   (which is start_timeout)
"""

import sys
import time

from tfdistr.communication.mpi_world import finish, world

what, seconds = sys.argv[1:3]
if what == "end":
    sys.exit("no such file: pictures.zip")
if what == "sleep":
    time.sleep(600)
print(f"{world(float(seconds)).Get_size()} ranks", flush=True)
if what == "stay":
    time.sleep(600)
finish()
