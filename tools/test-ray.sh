#!/bin/sh
# The tests of ray_cluster() that need Ray, in the environment that tools/setup-ray.sh makes; an argument is a part of
# their names. Without Ray they are skipped, and say so.
set -eu
cd "$(dirname "$0")/.."

python=.cache/ray-venv/bin/python
[ -x "$python" ] || python=.venv/bin/python
export RETICULATE_PYTHON="$PWD/$python"
chosen='not slow'
[ -z "${SLOW:-}" ] || chosen='slow or not slow'
exec "$python" -m pytest tests/engines_ray -m "$chosen" ${1:+-k "$1"} --durations=10
