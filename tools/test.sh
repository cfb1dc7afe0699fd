#!/bin/sh
# Runs the make targets given, all of them also when one fails, and ends with a line for each.
set -eu
cd "$(dirname "$0")/.."

# What processes leave that tests kill goes with this folder.
TMPDIR=$(mktemp -d)
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
trap 'exit 130' INT TERM

summary=
failed=0
begin=$(date +%s)
for target; do
  printf '\n==> make %s\n' "$target"
  start=$(date +%s)
  if make "$target"; then result=passed; else result=FAILED failed=1; fi
  summary="$summary$(printf '%-8s %-12s %5d s' "$result" "$target" $(($(date +%s) - start)))
"
done

printf '\n%s' "$summary"
if [ "$failed" = 0 ]; then
  printf 'All tests passed in %d s.\n' $(($(date +%s) - begin))
else
  printf 'Tests FAILED, after %d s.\n' $(($(date +%s) - begin))
fi
exit "$failed"
