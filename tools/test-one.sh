#!/bin/sh
# make test T=...: a folder, a file or a test (tests/python/clusters, tests/testthat/test-cluster.R, FILE::test_name)
# with its runner and its environment; or a part of a name, which may match tests of Python and of R.
set -eu
cd "$(dirname "$0")/.."
. tools/common.sh

# A test that is named runs, also if it is slow.
marks='not slow'
[ -z "${SLOW:-}" ] || marks=''
case $1 in *::*) marks='' ;; esac

pytest() { # pytest TEST...
  .venv/bin/python -m pytest -m "$marks" --durations=5 "$@"
}

beside() { # beside ENVIRONMENT TEST
  tools/test-beside.sh "$1" -m "$marks" --durations=5 "$2"
}

r() { # r NAME of a file of tests/testthat
  Rscript tools/test-r.R "$1"
}

path=${1%%::*}
if [ -e "$path" ]; then
  case $path in tests/*) ;; *) die "T is a path in tests/, or a part of the name of a test: $1" ;; esac
  case $path in
    tests/testthat/test-*.R) r "$(basename "${path#tests/testthat/test-}" .R)" ;;
    tests/testthat*) exec make -o setup test-r T= ;;
    tests/clusters_ray*) beside ray "$1" ;;
    tests/openmpi*) beside openmpi "$1" ;;
    tests/trackers*) beside trackers "$1" ;;
    tests/zoo*) beside zoo "$1" ;;
    tests/site*) tools/setup-site.sh browser && .cache/site-venv/bin/python -m pytest -m "$marks" "$1" ;;
    *) pytest "$1" ;;
  esac
  exit
fi

files=$(grep -rlE --include='test_*.py' "def test_\w*$1" tests/python tests/cross tests/faults || true)
files="$files $(find tests/python tests/cross tests/faults -name "test_*$1*.py")"
files=$(echo "$files" | tr ' ' '\n' | sort -u | grep . || true)
of_r=tests/testthat/test-$1.R
[ -n "$files" ] || [ -e "$of_r" ] || die "No test has this in its name: $1"
# shellcheck disable=SC2086 # several files
[ -z "$files" ] || pytest $files -k "$1"
[ ! -e "$of_r" ] || r "$1"
