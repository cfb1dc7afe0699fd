#!/bin/sh
# pytest: files side by side, as most of their time is waiting; `make test-alone` has the tests that measure time.
# The slow tests are left out, unless SLOW is set; `make faults` has those of tests/faults.
set -eu
cd "$(dirname "$0")/.."

chosen='not slow and not alone'
folders='tests/faults tests/python'
longest=20
if [ -n "${SLOW:-}" ]; then
  chosen='not alone'
  folders='tests/python'
  longest=100
fi

# Three processes: with two, the cores would wait; with four, the tests beside these slow down by more than it saves.
# In the order of their names: the files with few tests, which take longest, would come last otherwise.
# shellcheck disable=SC2086 # several folders
exec .venv/bin/python -m pytest $folders -m "$chosen" -n "${SIDE_BY_SIDE:-3}" --dist loadfile \
  --no-loadscope-reorder --durations=$longest
