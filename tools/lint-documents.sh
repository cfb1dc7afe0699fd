#!/bin/sh
# The files that GitHub and citation tools read, against their schemas, which check-jsonschema carries.
set -eu
cd "$(dirname "$0")/.."

check() {
  schema=$1
  shift
  .venv/bin/check-jsonschema --builtin-schema "$schema" "$@"
}

check vendor.github-workflows .github/workflows/*.yml
check custom.github-workflows-require-timeout .github/workflows/*.yml
check vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
check vendor.github-issue-forms $(ls .github/ISSUE_TEMPLATE/*.yml | grep -v '/config\.yml$')
check vendor.citation-file-format CITATION.cff
