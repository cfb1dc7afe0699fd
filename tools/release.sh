#!/bin/sh
# Makes dist/: the wheel, the sdist and the R package of the files that git has. Each is checked, then installed into an
# empty environment, where a small model is trained on two workers. A bill of materials lists the locked dependencies,
# in which known vulnerabilities are looked for. A recipe is for conda-forge. Nothing is uploaded.
set -eu
cd "$(dirname "$0")/.."
. tools/common.sh

[ -z "$(git status --porcelain)" ] || die "A release is made of what is committed.
Received: $(git status --porcelain | head -n 5)
Fix: Commit these files, or remove them."
python3 tools/publish.py check
.venv/bin/python -m pytest -q -m 'not slow' tests/python/test_project_files.py tests/python/test_publish.py \
  tests/python/test_packaging.py

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
root=$PWD
python=$(tools/find-python.sh)
mkdir "$work/source" "$work/elsewhere"
git archive HEAD | tar -xf - -C "$work/source"
python3 tools/publish.py links "$work/source"
rm -rf dist
mkdir dist

say "The wheel and the sdist"
tools/uv.sh build --quiet --python "$python" --out-dir "$root/dist" "$work/source"
rm -f dist/.gitignore
tools/uv.sh run --quiet --isolated --locked --only-group release --python "$python" twine check --strict dist/*

say "The recipe of conda-forge"
python3 tools/conda_recipe.py dist/tfdistr-*.tar.gz >dist/recipe.yaml
tools/uv.sh run --quiet --isolated --locked --only-group release --python "$python" \
  python -c 'import rattler_build, sys; print(*rattler_build.Stage0Recipe.from_file(sys.argv[1]).render())' dist/recipe.yaml

say "The bill of materials"
version=$(.venv/bin/python -c 'import tfdistr; print(tfdistr.__version__)')
python3 tools/sbom.py "dist/tfdistr-$version.cdx.json"

say "The R package"
"$work/source/tools/build-r.sh" "$root/dist"
tools/check-r.sh dist/tfdistr_*.tar.gz

# Only what the packages themselves ask for: neither .venv nor this folder.
unset PYTHONPATH RETICULATE_PYTHON R_LIBS VIRTUAL_ENV
for file in "$root"/dist/*.whl "$root"/dist/tfdistr-*.tar.gz; do
  say "$(basename "$file") in an empty environment"
  rm -rf "$work/venv"
  tools/uv.sh venv --quiet --python "$python" "$work/venv"
  tools/uv.sh pip install --quiet --compile-bytecode --python "$work/venv/bin/python" "tfdistr @ file://$file"
  (cd "$work/elsewhere" && "$work/venv/bin/tfdistr" test -n 2)
done

say "$(basename dist/tfdistr_*.tar.gz) in an empty library"
mkdir "$work/library"
R CMD INSTALL --library="$work/library" dist/tfdistr_*.tar.gz >"$work/install.log" 2>&1 || { cat "$work/install.log"; exit 1; }
# Python without tfdistr: R has to use the core that its package carries.
tools/uv.sh pip uninstall --quiet --python "$work/venv/bin/python" tfdistr
(cd "$work/elsewhere" && R_LIBS=$work/library RETICULATE_PYTHON=$work/venv/bin/python Rscript --vanilla -e '
  library(tfdistr)
  if (!tfdistr_test(workers = 2)) quit(status = 1)')

say "dist/ is ready:"
(cd dist && sha256sum -- *)
