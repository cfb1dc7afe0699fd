#' @keywords internal
"_PACKAGE"

#' @importFrom rlang %||% .data
#' @importFrom stats predict
NULL
