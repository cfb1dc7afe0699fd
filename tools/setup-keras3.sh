#!/bin/sh
# Puts keras3 and tfdatasets into R: from CRAN, else from the source packages in the folder KERAS3_PACKAGES. tfdistr works
# without them, so nothing fails where neither is there: one line says so, and the next try is a day later.
set -eu
cd "$(dirname "$0")/.."
. tools/common.sh

from=${KERAS3_PACKAGES:-../shared/r-packages}
log=.cache/keras3.log
missed=.cache/keras3-missed

installed() {
  Rscript --no-init-file -e "quit(status = length(find.package(c('keras3', 'tfdatasets'), quiet = TRUE)) < 2L)"
}

# The address of this machine's CRAN mirror, if it can be reached and has keras3.
cran() {
  Rscript -e '
    options(timeout = 20)
    if (identical(getOption("repos")[["CRAN"]], "@CRAN@")) chooseCRANmirror(ind = 1L, local.only = TRUE)
    mirror <- getOption("repos")[["CRAN"]]
    found <- suppressWarnings(tryCatch(available.packages(repos = mirror), error = function(e) NULL))
    if (!"keras3" %in% rownames(found)) quit(status = 1)
    cat(mirror)' 2>/dev/null
}

# The address of a repository with the packages in $from: R then finds their order, and what is too old here.
folder() {
  ls "$from"/keras3_*.tar.gz >/dev/null 2>&1 || return 1
  repository=$PWD/.cache/keras3-packages
  rm -rf "$repository"
  mkdir -p "$repository/src/contrib"
  cp "$from"/*.tar.gz "$repository/src/contrib/"
  Rscript -e 'tools::write_PACKAGES(commandArgs(TRUE), type = "source")' "$repository/src/contrib" >/dev/null 2>&1 || return 1
  echo "file://$repository"
}

# What these packages need, from apt where R is apt's: quicker than compiling it.
dependencies() {
  if can_apt && [ -z "$(apt_missing r-base-core)" ]; then
    apt_install r-cran-backports r-cran-base64enc r-cran-fastmap r-cran-generics r-cran-glue r-cran-here r-cran-lifecycle \
      r-cran-magrittr r-cran-matrix r-cran-png r-cran-processx r-cran-rappdirs r-cran-rcpp r-cran-rcpptoml \
      r-cran-rstudioapi r-cran-tidyselect r-cran-whisker r-cran-yaml r-cran-zeallot
  fi
}

install_from() {
  Rscript -e '
    arguments <- commandArgs(TRUE)
    options(timeout = 300, repos = c(CRAN = arguments[[1]]))
    install.packages(c("keras3", "tfdatasets"), arguments[[2]], INSTALL_opts = "--no-test-load")
  ' "$1" "$(r_library)" >"$log" 2>&1 && installed
}

if installed; then exit 0; fi
# shellcheck disable=SC2012 # any change in the folder is a reason for a new try
inputs=$(ls -l "$from" 2>&1 | cksum)
if [ -n "$(find "$missed" -mmin -1440 2>/dev/null)" ] && [ "$(cat "$missed")" = "$inputs" ]; then exit 0; fi

mkdir -p .cache
why="CRAN cannot be reached, and $from has no source package of it"
for way in cran folder; do
  repository=$($way) || continue
  say "R packages keras3 and tfdatasets from $repository"
  dependencies || say "apt did not install what keras3 needs: R compiles it."
  if install_from "$repository"; then
    rm -rf .cache/keras3-packages "$missed"
    exit 0
  fi
  why="see $log"
done
echo "$inputs" >"$missed"
say "keras3 is not installed ($why). tfdistr works without it."
