#!/bin/sh
# The tests of docs/trackers.md that need MLflow and Weights & Biases, in the environment that tools/setup-beside.sh
# makes; an argument is a part of their names. Without these libraries they are skipped, and say so.
set -eu
cd "$(dirname "$0")/.."

python=.cache/trackers-venv/bin/python
[ -x "$python" ] || python=.venv/bin/python
chosen='not slow'
[ -z "${SLOW:-}" ] || chosen='slow or not slow'
exec "$python" -m pytest tests/trackers -m "$chosen" ${1:+-k "$1"} --durations=10
