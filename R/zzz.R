.onLoad <- function(libname, pkgname) {
  recommend_python()
  register_engine()
  if (reticulate::py_available()) prepare_python() else setHook("reticulate.onPyInit", prepare_python)
}
