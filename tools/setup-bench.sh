#!/bin/sh
# Environments in .cache for the systems that the benchmarks compare with: "bench" has tf-keras and PyTorch, "bench-torch"
# has Keras on torch, "bench-jax" has Keras on JAX. What cannot be installed is left out, and the benchmarks say so.
set -eu
cd "$(dirname "$0")/.."
. tools/common.sh

# Not in uv.lock: torch's CPU build is not on PyPI, and nothing else needs JAX.
torch=2.13.0
jax=0.10.2

wanted=$(cat uv.lock pyproject.toml tools/setup-bench.sh | sha256sum)
is_current() { [ "$(cat ".cache/$1/inputs.sha256" 2>/dev/null)" = "$wanted" ]; }
left_out() { say "$1 is not installed: its rows of make bench are left out."; }

pip_install() {
  python="$PWD/.cache/$1/bin/python"
  shift
  python3 -m pip --version >/dev/null 2>&1 || apt_install python3-pip
  python3 -m pip --python "$python" install --quiet "$@"
}

# First from the sources that pip is configured with, then from PyTorch's own index.
install_torch() {
  pip_install "$@" "torch==$torch+cpu" 2>/dev/null ||
    pip_install "$@" --extra-index-url https://download.pytorch.org/whl/cpu "torch==$torch+cpu"
}

if ! is_current bench; then
  say "Python environment .cache/bench from uv.lock, with tf-keras"
  if UV_PROJECT_ENVIRONMENT=.cache/bench tools/uv.sh sync --locked --no-default-groups --group bench --python .venv/bin/python; then
    say "PyTorch $torch for CPUs, with pip"
    if install_torch bench; then echo "$wanted" >.cache/bench/inputs.sha256; else left_out PyTorch; fi
  else
    rm -rf .cache/bench
    left_out "tf-keras, and PyTorch with it,"
  fi
fi

# An environment with Keras and the command's packages, in the versions of uv.lock: beside NAME WHAT COMMAND...
beside() {
  name=$1 what=$2
  shift 2
  if is_current "$name"; then return; fi
  say "Python environment .cache/$name with $what, with pip"
  rm -rf ".cache/$name"
  mkdir -p .cache
  "$(.venv/bin/python -c 'import sys; print(sys._base_executable)')" -m venv --without-pip ".cache/$name"
  versions=.cache/$name/versions.txt
  tools/uv.sh export --locked --quiet --no-hashes --no-emit-project --no-default-groups >"$versions"
  if "$@" && pip_install "$name" -c "$versions" keras; then
    echo "$wanted" >".cache/$name/inputs.sha256"
  else
    rm -rf ".cache/$name"
    left_out "$what"
  fi
}

beside bench-torch "Keras on torch" install_torch bench-torch
beside bench-jax "Keras on JAX" pip_install bench-jax -c .cache/bench-jax/versions.txt keras "jax==$jax"
