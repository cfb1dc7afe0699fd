.onLoad <- function(libname, pkgname) {
  recommend_python()
  if (reticulate::py_available()) prepare_python() else setHook("reticulate.onPyInit", prepare_python)
}
