#!/bin/sh
# pytest in an environment that tools/setup-beside.sh makes: test-beside.sh ENVIRONMENT, then words for pytest. Without
# its packages the tests run in .venv, say so and are skipped.
set -eu
cd "$(dirname "$0")/.."

tools/setup-beside.sh "$1"
python=.cache/$1-venv/bin/python
[ -x "$python" ] || python=.venv/bin/python
export RETICULATE_PYTHON="$PWD/$python"
shift
exec "$python" -m pytest "$@"
