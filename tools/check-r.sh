#!/bin/sh
# R CMD check of the package as it would be handed out. The tests are run by make test-r, the PDF manual
# needs LaTeX, and vignettes train models: these three are left out. Warnings fail, as errors do.
set -eu
cd "$(dirname "$0")/.."
. tools/common.sh

rm -rf .cache/check
mkdir -p .cache/check
tools/build-r.sh .cache/check
cd .cache/check

# No network is asked for: neither the clock nor the repositories of the packages suggested.
_R_CHECK_SYSTEM_CLOCK_=false _R_CHECK_FORCE_SUGGESTS_=false _R_CHECK_CRAN_INCOMING_=false \
  R CMD check --no-manual --no-tests --ignore-vignettes tfdistr_*.tar.gz || true

log=tfdistr.Rcheck/00check.log
if grep -q '^Status:' "$log" && ! grep -E '^Status:.*(ERROR|WARNING)' "$log"; then
  say "R CMD check: no errors, no warnings"
else
  die "R CMD check found errors or warnings, see above or .cache/check/$log"
fi
