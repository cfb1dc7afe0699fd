#!/bin/sh
# The Python environment .venv, exactly as uv.lock has it. Nothing is done while uv.lock stays as it is.
# The bytecode is made here: where PYTHONDONTWRITEBYTECODE is set, each import of TensorFlow would take 16 s, not 4.
set -eu
cd "$(dirname "$0")/.."
. tools/common.sh

stamp=.venv/uv.lock.sha256
wanted=$(cat uv.lock pyproject.toml tools/setup-python.sh | sha256sum)
if [ -x .venv/bin/python ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then exit 0; fi

python=$(tools/find-python.sh)
say "Python environment .venv from uv.lock, with $python"
tools/uv.sh sync --locked --group dev --compile-bytecode --python "$python"
echo "$wanted" >"$stamp"
