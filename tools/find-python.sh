#!/bin/sh
# Prints the Python to build .venv with: 3.11 to 3.13, with a shared libpython (R embeds it)
# and with its headers (rpy2 is compiled). One that was compiled with profiles comes first, as it is faster (see
# docs/install.md). If there is none, the system's from apt.
set -eu
cd "$(dirname "$0")/.."
. tools/common.sh

suits() {
  "$1" - 2>/dev/null <<'PYTHON'
import os, sys, sysconfig
library = os.path.join(sysconfig.get_config_var("LIBDIR") or "", sysconfig.get_config_var("INSTSONAME") or "")
multiarch = os.path.join("/usr/lib", sysconfig.get_config_var("MULTIARCH") or "", os.path.basename(library))
header = os.path.join(sysconfig.get_paths()["include"], "Python.h")
fine = (
    (3, 11) <= sys.version_info < (3, 14)
    and sysconfig.get_config_var("Py_ENABLE_SHARED") == 1
    and (os.path.isfile(library) or os.path.isfile(multiarch))
    and os.path.isfile(header)
)
sys.exit(not fine)
PYTHON
}

is_optimized() { # Debian's does not say it of itself
  "$1" -c 'import sys, sysconfig
configured = sysconfig.get_config_var("CONFIG_ARGS") or ""
sys.exit(not ("--enable-optimizations" in configured or sys.executable.startswith("/usr/bin/")))'
}

first_that() {
  for python in python3 /usr/bin/python3 python3.13 python3.12 python3.11; do
    if have "$python" && suits "$python" && "$1" "$python"; then
      "$python" -c 'import sys; print(sys.executable)'
      return 0
    fi
  done
  return 1
}

if first_that is_optimized || first_that true; then exit 0; fi
if can_apt; then
  apt_install python3-dev python3-venv >&2 # environments of its users, as install_tfdistr() makes them
  first_that true && exit 0
fi
die "tfdistr is built with Python 3.11, 3.12 or 3.13, with its headers and a shared library (configured with
--enable-shared), and none was found. Install one (Debian, Ubuntu: apt-get install python3-dev; pyenv:
PYTHON_CONFIGURE_OPTS=--enable-shared pyenv install 3.12), put it on the PATH, then run make setup again."
