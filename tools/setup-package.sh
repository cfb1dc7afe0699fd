#!/bin/sh
# Installs the R package, unless what is installed was made of these very files, and records in it
# the Python of .venv, so that library(tfdistr) finds it from anywhere.
set -eu
cd "$(dirname "$0")/.."
. tools/common.sh

python=$PWD/.venv/bin/python
source=$({
  echo "$python"
  find -L DESCRIPTION NAMESPACE R man inst vignettes -type f ! -path '*/__pycache__/*' ! -path '*.egg-info/*' ! -path '*/.*' 2>/dev/null |
    LC_ALL=C sort | xargs sha256sum
} | sha256sum | cut -d ' ' -f 1)

installed=$(Rscript --no-init-file -e 'cat(system.file("setup.dcf", package = "tfdistr"))')
if [ -n "$installed" ] && grep -qx "Source: $source" "$installed"; then exit 0; fi

library=$(r_library)
say "R package tfdistr into $library"
R CMD INSTALL --no-test-load --library="$library" .
"$python" -m compileall -q "$library/tfdistr/python"
printf 'Python: %s\nSource: %s\n' "$python" "$source" >"$library/tfdistr/setup.dcf"
Rscript --no-init-file -e 'invisible(loadNamespace("tfdistr"))'
say "tfdistr is set up: library(tfdistr) in R, import tfdistr in .venv/bin/python"
