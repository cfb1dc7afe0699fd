#!/bin/sh
# What the tests of ssh_cluster() make hosts of: network namespaces, each with an ssh server of its own. They need
# root; without, or without these packages, they say so and are skipped.
set -eu
cd "$(dirname "$0")/.."
. tools/common.sh

if [ "$(id -u)" != 0 ] || ! can_apt; then exit 0; fi
if [ -d /run/systemd/system ] && ! have sshd; then
  say "not installed: openssh-server, for systemd would start it. The tests of several hosts are skipped."
  exit 0
fi
apt_install iproute2 openssh-client openssh-server ||
  say "apt did not install what the tests of several hosts need: they are skipped."
