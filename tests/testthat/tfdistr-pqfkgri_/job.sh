#!/bin/sh
#SBATCH --job-name=tfdistr
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --no-requeue

exec srun --kill-on-bad-exit=1 --quit-on-interrupt --distribution=block --export=ALL --mpi=none --nodes=2 --ntasks=2 --ntasks-per-node=1 /work/main/.venv/bin/python -I -S /root/rside/lib/tfdistr/python/tfdistr/clusters/guard.py rank /work/wt/rside/tests/testthat/tfdistr-pqfkgri_
