#!/bin/sh
# keras3 and its family, of which only tests make use, into a library of their own: .cache/keras3. From the source
# packages in KERAS3_PACKAGES; without that folder nothing is done, and the tests that need keras3 are skipped.
set -eu
cd "$(dirname "$0")/.."
. tools/common.sh

from=${KERAS3_PACKAGES:-../shared/r-packages}
library=$PWD/.cache/keras3
[ -d "$from" ] || exit 0

for name in config dotty tfautograph reticulate tfruns tensorflow keras3 tfdatasets; do
  source=$(find "$from" -name "${name}_*.tar.gz" | sort | tail -n 1)
  [ -n "$source" ] || die "$from has no source package of $name. Add it, or set KERAS3_PACKAGES to another folder."
  version=$(basename "$source" .tar.gz)
  [ ! -e "$library/.$version" ] || continue
  if [ "$name" = config ]; then # the first of them
    apt_install r-cran-zeallot r-cran-tidyselect r-cran-generics r-cran-whisker r-cran-rstudioapi r-cran-base64enc \
      r-cran-yaml r-cran-processx r-cran-glue r-cran-rcpptoml r-cran-here r-cran-png r-cran-rappdirs r-cran-backports
  fi
  say "R package $version into .cache/keras3, for tests"
  mkdir -p "$library"
  R_LIBS=$library R CMD INSTALL --no-docs --no-test-load --library="$library" "$source" >"$library/$name.log" 2>&1 ||
    die "$version was not installed: see .cache/keras3/$name.log"
  touch "$library/.$version"
done
