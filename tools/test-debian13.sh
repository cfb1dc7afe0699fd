#!/bin/sh
# The tests of R on Debian 13, which has a newer R (4.5) and Python (3.13): in a chroot, .cache/debian13, which the
# project's own set-up fills as on any fresh machine. Processes and mounts end with this script.
set -eu
cd "$(dirname "$0")/.."
. tools/common.sh

if [ "$(id -u)" != 0 ] || ! have apt-get; then
  say "SKIPPED: a chroot of Debian 13 needs root and apt"
  exit 0
fi
apt_install debootstrap git
root=$PWD/.cache/debian13
# shellcheck disable=SC2016 # apt's own variables
mirror=$(apt-get indextargets --format '$(ORIGIN) $(REPO_URI)' 'Created-By: Packages' | sed -n 's/^Debian //p' | head -n 1)
if [ ! -e "$root/.complete" ]; then
  say "Debian 13 into .cache/debian13"
  rm -rf "$root"
  debootstrap --variant=minbase --include=ca-certificates,make,procps,python3 trixie "$root" \
    "${mirror:-http://deb.debian.org/debian}" >/dev/null || die "debootstrap failed: see $root/debootstrap/debootstrap.log"
  # The package registries are reached as from this machine.
  for file in /etc/pip.conf /root/.config/pip/pip.conf /usr/local/share/ca-certificates; do
    [ ! -e "$file" ] || { mkdir -p "$root$(dirname "$file")" && cp -r "$file" "$root$(dirname "$file")"; }
  done
  # Inside there is no folder of that name for temporary files.
  env -u TMPDIR chroot "$root" update-ca-certificates >/dev/null 2>&1 || die "the chroot has no certificates"
  touch "$root/.complete"
fi
cp -L /etc/resolv.conf /etc/hosts "$root/etc"

# The files of this checkout; what an earlier set-up has made stays.
here=$root/tfdistr
mkdir -p "$here" "$root/r-packages"
find "$here" -mindepth 1 -maxdepth 1 ! -name .venv ! -name .cache ! -name .tools -exec rm -rf {} +
git ls-files -z --cached --others --exclude-standard | tar --null -T - -cf - | tar -xf - -C "$here"

packages=${KERAS3_PACKAGES:-../shared/r-packages}
[ ! -d "$packages" ] || packages=$(cd "$packages" && pwd)
export root packages
# Without the slow tests: they are not about the version of R.
# shellcheck disable=SC2016 # expanded inside
exec unshare --mount --pid --fork --kill-child sh -euc '
  mount -t proc proc "$root/proc"
  mount --rbind /dev "$root/dev"
  mount -t tmpfs tmpfs "$root/tmp"
  [ ! -d "$packages" ] || mount --bind -o ro "$packages" "$root/r-packages"
  exec env -u TMPDIR -u RETICULATE_PYTHON -u SLOW KERAS3_PACKAGES=/r-packages chroot "$root" make -C /tfdistr test-r'
