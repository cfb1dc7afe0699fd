#!/bin/sh
# The Slurm that the tests of slurm_cluster() start: programs only, no daemon runs when this ends. The nodes of
# the tests need root; without, or without these packages, the tests say so and are skipped. libpmix-dev has the library
# that srun --mpi=pmix loads.
set -eu
cd "$(dirname "$0")/.."
. tools/common.sh

if ! can_apt; then exit 0; fi
if [ -d /run/systemd/system ] && ! have slurmctld; then
  say "not installed: slurm-wlm and munge, for systemd would start them. The tests of Slurm are skipped."
  exit 0
fi
apt_install slurm-wlm munge || say "apt did not install Slurm: its tests are skipped."
apt_install libpmix-dev || say "apt did not install libpmix-dev: the tests of srun --mpi=pmix are skipped."
