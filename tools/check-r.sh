#!/bin/sh
# R CMD check --as-cran of the package as it would be handed out, or of the tarball $1. The tests are run by
# make test-r, and the PDF manual needs LaTeX: these two are left out. The examples are slow: without a tarball they run
# only if SLOW is set. Errors and warnings fail, and so do notes, but for those that say that this package is new, or
# that packages are not here.
set -eu
cd "$(dirname "$0")/.."
. tools/common.sh

rm -rf .cache/check
mkdir -p .cache/check
if [ $# = 1 ]; then cp "$1" .cache/check/; else tools/build-r.sh .cache/check; fi

# With NOT_CRAN the examples run; those with keras3 only where it is (tools/setup-keras3.sh). They start processes and
# train, so they may take their time. No network is asked for: neither the clock nor repositories of packages.
NOT_CRAN=true
# Many short processes, which start and end fast as in tests/conftest.py.
OPENBLAS_NUM_THREADS=1
R_NSIZE=4M
PYTHONPATH=$PWD/tests/without:$PWD/tests/startup
export NOT_CRAN OPENBLAS_NUM_THREADS R_NSIZE PYTHONPATH
examples=--no-examples
if [ $# = 1 ] || [ -n "${SLOW:-}" ]; then examples=; fi
cd .cache/check
# Of suggested packages that are not here, R asks CRAN whether they have a maintainer: this table has no package.
mkdir -p web/packages
Rscript --vanilla -e 'saveRDS(data.frame(Package = character(), Maintainer = character()), "web/packages/packages.rds")'
# shellcheck disable=SC2086 # an option, or none
R_CRAN_WEB=file://$PWD _R_CHECK_SYSTEM_CLOCK_=false _R_CHECK_FORCE_SUGGESTS_=false _R_CHECK_CRAN_INCOMING_REMOTE_=false \
  _R_CHECK_EXAMPLE_TIMING_THRESHOLD_=600 R CMD check --as-cran --no-manual --no-tests $examples tfdistr_*.tar.gz || true

log=tfdistr.Rcheck/00check.log
allowed='CRAN incoming feasibility|package dependencies'
# TensorFlow removes what it has compiled of functions at the end of Python, which R does without (reticulate 1.43).
left=$(sed -n '/^\* checking for detritus/,/^\* DONE/p' "$log" | grep '‘' | grep -v '‘__autograph_generated_file' || true)
[ -n "$left" ] || allowed="$allowed|for detritus in the temp directory"
notes=$(awk '/^\* checking / { check = $0 } / NOTE$/ { print check }' "$log" |
  grep -vE "^\* checking ($allowed) " || true)
if grep -q '^Status:' "$log" && ! grep -E '^Status:.*(ERROR|WARNING)' "$log" && [ -z "$notes" ]; then
  say "R CMD check: no errors, no warnings, no notes but of packages that are not here"
else
  die "R CMD check found errors, warnings or notes ($notes), see above or .cache/check/$log"
fi
