#!/bin/sh
# An environment in .cache/site-venv, which builds the site and tests it: MkDocs and Selenium, without TensorFlow.
# With the argument "browser" also the browser that tests the pages. Without it, or without its packages, those
# tests say so and are skipped.
set -eu
cd "$(dirname "$0")/.."
. tools/common.sh

if [ "${1:-}" = browser ] && can_apt; then
  apt_install chromium chromium-driver || say "apt did not install Chromium: the tests of the site are skipped."
fi

venv=.cache/site-venv
stamp=$venv/inputs.sha256
wanted=$(cat uv.lock pyproject.toml tools/setup-site.sh | sha256sum)
if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then exit 0; fi

say "Python environment $venv from uv.lock, with MkDocs"
UV_PROJECT_ENVIRONMENT=$venv tools/uv.sh sync --locked --only-group site --no-install-project \
  --python "$(tools/find-python.sh)"
echo "$wanted" >"$stamp"
