#!/bin/sh
# make setup: R and its packages, keras3, .venv, the R package. Each step looks at what is there
# and does only what is missing, so a second run changes nothing.
set -eu
cd "$(dirname "$0")/.."
export LC_ALL=C.UTF-8

tools/setup-r.sh
tools/setup-reticulate.sh
tools/setup-keras3.sh
tools/setup-python.sh
# Else each process would compile it anew where PYTHONDONTWRITEBYTECODE is set, as in many containers.
.venv/bin/python -m compileall -q python/tfdistr
tools/setup-package.sh
