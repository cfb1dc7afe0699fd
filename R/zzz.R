.onLoad <- function(libname, pkgname) {
  recommend_python()
  register_engine()
}
