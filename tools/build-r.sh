#!/bin/sh
# R CMD build into the folder $1. It copies everything before it drops what .Rbuildignore names, so it
# gets a copy without .venv and caches. The copy has the core in the place of the links of inst/, which git checks out
# as plain files where it makes no symbolic links.
set -eu
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir "$stage/tfdistr"
tar -cf - --exclude='./.[a-z]*' . | tar -xf - -C "$stage/tfdistr"
for name in python pyproject.toml; do
  rm "$stage/tfdistr/inst/$name"
  mv "$stage/tfdistr/$name" "$stage/tfdistr/inst/"
done
cd "$out"
R CMD build "$stage/tfdistr"
