#!/bin/sh
# pytest: files side by side, as most of their time is waiting; `make test-alone` has the tests that measure time.
# The slow tests are left out, unless SLOW is set; `make faults` has those of tests/faults.
set -eu
cd "$(dirname "$0")/.."

chosen='not slow and not alone'
folders='tests/faults tests/python'
processes=4
longest=20
if [ -n "${SLOW:-}" ]; then
  chosen='not alone'
  folders='tests/python'
  processes=3 # slow tests wait less, and more processes than cores slow each other down
  longest=100
fi

# In the order of their names: the files with few tests, which take longest, would come last otherwise.
# shellcheck disable=SC2086 # several folders
exec .venv/bin/python -m pytest $folders -m "$chosen" -n "${SIDE_BY_SIDE:-$processes}" --dist loadfile \
  --no-loadscope-reorder --durations=$longest
