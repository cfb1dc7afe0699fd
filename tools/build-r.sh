#!/bin/sh
# R CMD build into the folder $1. It copies everything before it drops what .Rbuildignore names, so it
# gets a copy without .venv and caches.
set -eu
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir "$stage/tfdistr"
tar -cf - --exclude='./.[a-z]*' . | tar -xf - -C "$stage/tfdistr"
cd "$out"
R CMD build "$stage/tfdistr"
