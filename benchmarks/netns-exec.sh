#!/bin/sh
# What mpiexec calls in place of ssh: runs a command in the network namespace that is named like the host.
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
exec ip netns exec "$host" sh -c "$*"
