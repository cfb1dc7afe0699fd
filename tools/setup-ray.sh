#!/bin/sh
# A second environment in .cache/ray-venv, for the tests of ray_cluster(): Ray and keras-tuner, beside all that .venv
# has, which is not installed twice. Without a package index nothing is installed, and the tests say so.
set -eu
cd "$(dirname "$0")/.."
. tools/common.sh

venv=.cache/ray-venv
stamp=$venv/inputs.sha256
wanted=$(cat uv.lock pyproject.toml tools/setup-ray.sh | sha256sum)
if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then exit 0; fi

say "Python environment $venv, with Ray, beside .venv"
venv_beside "$venv"

# The versions of uv.lock. pip sees the packages of .venv, and adds what is missing.
tools/uv.sh export --locked --quiet --no-hashes --no-emit-project --all-extras --group ray >"$venv/versions.txt"
python3 -m pip --version >/dev/null 2>&1 || apt_install python3-pip
if python3 -m pip --python "$venv/bin/python" install --quiet -c "$venv/versions.txt" 'ray[tune]' keras-tuner; then
  echo "$wanted" >"$stamp"
else
  rm -rf "$venv"
  say "pip did not install Ray: the tests of ray_cluster() are skipped."
fi
