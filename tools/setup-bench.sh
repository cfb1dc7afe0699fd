#!/bin/sh
# A second environment in .cache/bench, for what the benchmarks compare with: tf-keras and PyTorch.
set -eu
cd "$(dirname "$0")/.."
. tools/common.sh

# Not in uv.lock: its CPU build is not on PyPI.
torch=2.13.0

stamp=.cache/bench/inputs.sha256
wanted=$(cat uv.lock pyproject.toml tools/setup-bench.sh | sha256sum)
if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then exit 0; fi

say "Python environment .cache/bench from uv.lock, with tf-keras"
UV_PROJECT_ENVIRONMENT=.cache/bench tools/uv.sh sync --locked --no-default-groups --group bench --python .venv/bin/python

say "PyTorch $torch for CPUs, with pip"
python3 -m pip --version >/dev/null 2>&1 || apt_install python3-pip
install() { python3 -m pip --python .cache/bench/bin/python install --quiet "$@" "torch==$torch+cpu"; }
# What pip is configured to look at first; then where PyTorch's CPU builds are.
install 2>/dev/null || install --extra-index-url https://download.pytorch.org/whl/cpu
echo "$wanted" >"$stamp"
