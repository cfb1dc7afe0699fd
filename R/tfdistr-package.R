#' @keywords internal
"_PACKAGE"

#' @importFrom rlang %||%
NULL
