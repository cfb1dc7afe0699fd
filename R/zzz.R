.onLoad <- function(libname, pkgname) {
  recommend_python()
}
