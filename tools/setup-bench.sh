#!/bin/sh
# A second environment with tf-keras in .cache/bench, for what the benchmarks compare with.
set -eu
cd "$(dirname "$0")/.."
. tools/common.sh

stamp=.cache/bench/uv.lock.sha256
wanted=$(cat uv.lock pyproject.toml | sha256sum)
if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then exit 0; fi

say "Python environment .cache/bench from uv.lock, with tf-keras"
UV_PROJECT_ENVIRONMENT=.cache/bench tools/uv.sh sync --locked --no-default-groups --group bench --python .venv/bin/python
echo "$wanted" >"$stamp"
