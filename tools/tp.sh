#!/bin/sh
# pytest: files side by side, as most of their time is waiting; then, by themselves, the tests that measure time.
# The slow tests are left out, unless SLOW is set; `make faults` has those of tests/faults.
set -eu
cd "$(dirname "$0")/.."

python=.venv/bin/python
side_by_side="${SIDE_BY_SIDE:-3}"
chosen='not slow and not alone'
alone='alone and not slow'
folders='tests/faults tests/python'
if [ -n "${SLOW:-}" ]; then
  chosen='not alone'
  alone='alone'
  folders='tests/python'
fi

status=0
# In the order of their names: the files with few tests, which take longest, would come last otherwise.
# shellcheck disable=SC2086 # several folders
"$python" -m pytest $folders -m "$chosen" -n "$side_by_side" --dist loadfile --no-loadscope-reorder --durations=0 -p kinds_dbg ||
  status=1
# shellcheck disable=SC2046 # one word per file
"$python" -m pytest -m "$alone" $(grep -l 'pytest\.mark\.alone' tests/python/*.py) || status=1
exit "$status"
