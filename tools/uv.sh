#!/bin/sh
# Runs uv: the one on the PATH, else one that pip puts into .tools/uv.
set -eu
cd "$(dirname "$0")/.."
. tools/common.sh

# A lock file is read by uv 0.5 and later. UV_AT_LEAST asks for a newer one.
recent() {
  version=$("$1" --version | cut -d ' ' -f 2)
  least=${UV_AT_LEAST:-0.5}
  [ "$(printf '%s\n' "$least" "$version" | sort -V | head -n 1)" = "$least" ]
}

if have uv && recent uv; then
  uv=uv
else
  uv=.tools/uv/bin/uv
  if [ ! -x "$uv" ]; then
    python3 -m pip --version >/dev/null 2>&1 || apt_install python3-pip >&2
    say "uv, with pip, into .tools/uv" >&2
    python3 -m pip install --quiet --require-hashes --only-binary :all: --target .tools/uv -r tools/uv.txt >&2
  fi
fi
export UV_PYTHON_DOWNLOADS=never
exec "$uv" "$@"
