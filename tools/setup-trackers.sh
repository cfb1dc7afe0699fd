#!/bin/sh
# A third environment in .cache/trackers-venv, for the tests of docs/trackers.md: MLflow and Weights & Biases, beside
# all that .venv has, which is not installed twice. Without a package index nothing is installed, and the tests say so.
set -eu
cd "$(dirname "$0")/.."
. tools/common.sh

venv=.cache/trackers-venv
stamp=$venv/inputs.sha256
wanted=$(cat uv.lock pyproject.toml tools/setup-trackers.sh | sha256sum)
if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then exit 0; fi

say "Python environment $venv, with MLflow and Weights & Biases, beside .venv"
venv_beside "$venv"

# The versions of uv.lock. pip sees the packages of .venv, and adds what is missing or is too new for MLflow.
tools/uv.sh export --locked --quiet --no-hashes --no-emit-project --no-default-groups --group trackers \
  >"$venv/versions.txt"
python3 -m pip --version >/dev/null 2>&1 || apt_install python3-pip
if python3 -m pip --python "$venv/bin/python" install --quiet -c "$venv/versions.txt" mlflow wandb; then
  echo "$wanted" >"$stamp"
else
  rm -rf "$venv"
  say "pip did not install MLflow and Weights & Biases: their tests are skipped."
fi
