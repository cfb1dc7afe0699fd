"""Two ranks sum a number. Rank 1 comes WAIT seconds later; rank 0 prints the CPU seconds that its wait took.

Usage: patient.py WAIT
"""

import sys
import time

import numpy as np
import tensorflow as tf
from mpi4py import MPI

from tfdistr.collectives.mpi.collectives import MpiCollectives

collectives = MpiCollectives(MPI.COMM_WORLD, 1 << 20)
index = MPI.COMM_WORLD.Get_rank()
number = tf.constant(np.ones(1, "float32"))
collectives.sum(number)  # what happens only once is over
if index == 1:
    time.sleep(float(sys.argv[1]))
before = time.process_time()
assert float(collectives.sum(number)[0]) == 2.0
if index == 0:
    print(f"spent {time.process_time() - before}", flush=True)
collectives.close()
MPI.Finalize()
