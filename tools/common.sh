# shellcheck shell=sh
# Shared by the scripts in tools/: messages, packages from apt, the R library to write to.

say() { printf '==> %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# True where packages can be installed from apt: Debian, Ubuntu, and root or sudo.
can_apt() { have apt-get && { [ "$(id -u)" = 0 ] || have sudo; }; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# The packages among the arguments that dpkg does not have.
apt_missing() {
  for package; do
    dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || printf '%s ' "$package"
  done
}

# apt-get, one at a time: parts of the tests are set up side by side, and apt does not wait for the lock of its lists.
apt_get() {
  as_root env DEBIAN_FRONTEND=noninteractive flock /var/lib/apt/lists apt-get -q -o Acquire::Retries=3 \
    -o DPkg::Lock::Timeout=300 "$@"
}

apt_update() {
  [ -n "${apt_updated:-}" ] || apt_get update
  apt_updated=1
}

# Installs the packages that are missing; touches apt only if there are any.
apt_install() {
  missing=$(apt_missing "$@")
  [ -n "$missing" ] || return 0
  can_apt || die "These packages are missing: ${missing}and they can't be installed (no apt-get, or neither root nor sudo).
Install them, or what is called like them on your system, then run make setup again."
  say "apt-get install $missing"
  apt_update
  # shellcheck disable=SC2086 # one word per package
  apt_get install -y --no-install-recommends -o Dpkg::Use-Pty=0 $missing
}

# The first R library that this user may write to; the user's own library is made if need be.
r_library() {
  # shellcheck disable=SC2016 # R code
  Rscript --no-init-file -e '
    lib <- Filter(function(path) file.access(path, 2L) == 0L, .libPaths())
    if (!length(lib)) {
      lib <- strsplit(Sys.getenv("R_LIBS_USER"), .Platform$path.sep)[[1]]
      dir.create(lib[[1]], recursive = TRUE, showWarnings = FALSE)
    }
    cat(path.expand(lib[[1]]))'
}
