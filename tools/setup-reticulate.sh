#!/bin/sh
# Puts reticulate into R, as new as DESCRIPTION wants it: older ones can't use NumPy 2 and have no py_require().
# From wherever it is to be had: already there, apt, CRAN, or the source package of a newer Debian or Ubuntu.
set -eu
cd "$(dirname "$0")/.."
. tools/common.sh

wanted=$(sed -n 's/.*reticulate (>= \([0-9.]*\)).*/\1/p' DESCRIPTION)
work=$PWD/.cache/reticulate

installed() {
  Rscript --no-init-file -e "quit(status = !(requireNamespace('reticulate', quietly = TRUE) && packageVersion('reticulate') >= '$wanted'))"
}

from_apt() {
  can_apt || return 1
  candidate=$(apt-cache policy r-cran-reticulate 2>/dev/null | sed -n 's/^ *Candidate: *//p')
  [ -n "$candidate" ] && dpkg --compare-versions "$candidate" ge "$wanted" || return 1
  apt_install r-cran-reticulate
}

# What reticulate itself needs, from apt where R is apt's: quicker than compiling it.
dependencies() {
  if can_apt && [ -z "$(apt_missing r-base-core)" ]; then
    apt_install r-cran-rcpp r-cran-rcpptoml r-cran-here r-cran-jsonlite r-cran-png r-cran-rappdirs r-cran-rlang r-cran-withr r-cran-matrix
  fi
}

from_cran() {
  say "reticulate: asking CRAN"
  Rscript -e '
    options(timeout = 20)
    if (identical(getOption("repos")[["CRAN"]], "@CRAN@")) chooseCRANmirror(ind = 1L, local.only = TRUE)
    found <- suppressWarnings(tryCatch(available.packages(), error = function(e) NULL))
    if (is.null(found) || !"reticulate" %in% rownames(found)) quit(status = 1)
    options(timeout = 300)
    install.packages("reticulate", lib = commandArgs(TRUE))' "$library"
}

# The mirrors that apt itself uses for the distribution $1, without its security archive.
mirrors() {
  # shellcheck disable=SC2016 # apt's own variables
  apt-get indextargets --format '$(ORIGIN) $(LABEL) $(REPO_URI)' 'Created-By: Packages' |
    sed -n "s/^$1 $1 //p" | sort -u
}

# apt, with its lists in $work/lists and only the sources in $work/sources.list.
private_apt() {
  apt-get -q -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=/dev/null \
    -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache" -o APT::Sandbox::User= \
    -o APT::Update::Error-Mode=any -o Acquire::Retries=3 "$@"
}

# Installs reticulate from the source package in component $3 of release $2 of the distribution $1.
from_release() {
  for mirror in $(mirrors "$1"); do
    say "reticulate: source package of $1 $2 from $mirror"
    rm -rf "$work"
    mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/source"
    keyring=/usr/share/keyrings/$(echo "$1" | tr '[:upper:]' '[:lower:]')-archive-keyring.gpg
    echo "deb-src [signed-by=$keyring] $mirror $2 $3" >"$work/sources.list"
    private_apt update && (cd "$work" && private_apt source --download-only --tar-only r-cran-reticulate) &&
      tar -xf "$work"/*.orig.tar.* -C "$work/source" --strip-components=1 &&
      R CMD INSTALL --no-docs --no-test-load --library="$library" "$work/source" &&
      rm -rf "$work" && return 0
  done
  return 1
}

from_apt_source() {
  have apt-get && { from_release Debian trixie main || from_release Ubuntu resolute universe; }
}

installed && exit 0
if from_apt && installed; then exit 0; fi
dependencies
library=$(r_library)
if from_cran && installed; then exit 0; fi
if from_apt_source && installed; then exit 0; fi
die "R needs reticulate >= $wanted. This system's apt has none, CRAN was not to be reached, and apt knows no mirror with
the sources of one. Install it by hand: install.packages(\"reticulate\") in R,
or R CMD INSTALL reticulate_<version>.tar.gz, then run make setup again."
