#!/bin/sh
# The tests of ray_cluster() that need Ray, in the environment that tools/setup-beside.sh makes; an argument is a part of
# their names. Without Ray they are skipped, and say so.
set -eu
cd "$(dirname "$0")/.."

python=.cache/ray-venv/bin/python
[ -x "$python" ] || python=.venv/bin/python
export RETICULATE_PYTHON="$PWD/$python"
chosen='not slow'
[ -z "${SLOW:-}" ] || chosen='slow or not slow'
failed=0
"$python" -m pytest tests/engines_ray -m "$chosen" ${1:+-k "$1"} --durations=10 || failed=1
# The suite of all engines, on Ray.
[ -z "${SLOW:-}" ] || "$python" -m pytest tests/engines/test_engines.py -k ray_nodes || failed=1
exit $failed
