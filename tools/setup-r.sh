#!/bin/sh
# R, its compilers, and the R packages that DESCRIPTION names (reticulate: setup-reticulate.sh).
# From apt, unless this machine has an R that is not apt's: then from CRAN.
set -eu
cd "$(dirname "$0")/.."
. tools/common.sh

missing_packages() { Rscript --no-init-file tools/missing-r-packages.R; }

if ! have R; then
  apt_install r-base-core r-base-dev
fi
packages=$(missing_packages | xargs)

if [ -z "$(apt_missing r-base-core)" ] && have apt-get; then
  # shellcheck disable=SC2046 # one word per package
  apt_install r-base-dev pandoc qpdf $(for name in $packages; do echo "r-cran-$name" | tr '[:upper:]' '[:lower:]'; done)
elif [ -n "$packages" ]; then
  say "R packages from CRAN: $packages"
  # shellcheck disable=SC2086 # one word per package
  Rscript -e '
    if (identical(getOption("repos")[["CRAN"]], "@CRAN@")) chooseCRANmirror(ind = 1L, local.only = TRUE)
    arguments <- commandArgs(TRUE)
    install.packages(arguments[-1], lib = arguments[[1]])' "$(r_library)" $packages
fi

packages=$(missing_packages | xargs)
[ -z "$packages" ] || die "R lacks these packages, or has them in too old a version: $packages
Install them in R: install.packages(\"<name>\"), then run make setup again."
