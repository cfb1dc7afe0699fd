#!/bin/sh
# Runs the make targets given, all of them also when one fails, and ends with a line for each. Targets with commas
# between them run side by side, those with "+" between them one after the other beside these; what all but the
# first of them print comes after it. What a target that failed printed last is printed again at the end, and the
# names of the tests that failed last of all, since some records have the last lines only.
set -eu
cd "$(dirname "$0")/.."

# What processes leave that tests kill goes with this folder.
TMPDIR=$(mktemp -d)
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
trap 'exit 130' INT TERM
results=$TMPDIR/results

run() { # without the set-up, which was made before
  start=$(date +%s)
  if make -o setup "$1"; then result=passed; else result=FAILED; fi
  printf '%-8s %-24s %5d s\n' "$result" "$1" $(($(date +%s) - start)) >>"$results"
}

begin=$(date +%s)
for group; do
  first=${group%%,*}
  others=$(echo "${group#"$first"}" | tr , ' ')
  printf '\n==> make %s\n' "$first$others"
  for lane in $others; do
    for target in $(echo "$lane" | tr + ' '); do run "$target" >"$TMPDIR/$target.out" 2>&1; done &
  done
  run "$first" 2>&1 | tee "$TMPDIR/$first.out"
  wait
  for target in $(echo "$others" | tr + ' '); do
    printf '\n==> %s\n' "$target"
    cat "$TMPDIR/$target.out"
  done
done

failed=$(sed -n 's/^FAILED *\([^ ]*\).*/\1/p' "$results")
for target in $failed; do
  printf '\n==> the end of make %s, which failed\n' "$target"
  tail -n 80 "$TMPDIR/$target.out"
done
for target in $failed; do
  printf '\n==> what failed in make %s\n' "$target"
  grep -A 5 -E '^(FAILED|ERROR) |^(Failure|Error) \(|have left:|^! ' "$TMPDIR/$target.out" | cut -c 1-160 | tail -n 24
done

printf '\n'
cat "$results"
if grep -q '^FAILED' "$results"; then
  printf 'Tests FAILED, after %d s.\n' $(($(date +%s) - begin))
  exit 1
fi
printf 'All tests passed in %d s.\n' $(($(date +%s) - begin))
