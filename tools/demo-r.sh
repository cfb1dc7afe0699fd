#!/bin/sh
# The part of make demo in R: with keras3, if R has it.
set -eu
cd "$(dirname "$0")/.."
. tools/common.sh

if Rscript --no-init-file -e "quit(status = !length(find.package('keras3', quiet = TRUE)))"; then
  exec Rscript examples/demo.R
fi
say "R has no keras3: the model of examples/demo_without_keras3.R comes from reticulate::import(\"keras\")."
exec Rscript examples/demo_without_keras3.R
