#!/bin/sh
# The files that GitHub and citation tools read, against their schemas, which check-jsonschema carries.
set -eu
cd "$(dirname "$0")/.."

check() {
  schema=$1
  shift
  echo "$schema: $*"
  .venv/bin/check-jsonschema --quiet --builtin-schema "$schema" "$@"
}

check vendor.github-workflows .github/workflows/*.yml
check custom.github-workflows-require-timeout .github/workflows/*.yml
for form in .github/ISSUE_TEMPLATE/*.yml; do
  case $form in
    */config.yml) check vendor.github-issue-config "$form" ;;
    *) check vendor.github-issue-forms "$form" ;;
  esac
done
check vendor.citation-file-format CITATION.cff
