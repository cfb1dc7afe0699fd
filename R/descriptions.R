# Descriptions: what local_cluster(), per_worker(), on_failure() and their like return. They are lists of
# plain values, which R can save and send. The core makes its own object of one wherever it is used.

# name: The function of the core, which checks the arguments; it has those of the R function that calls this.
new_description <- function(name, class, call = rlang::caller_env(), of = rlang::caller_fn()) {
  arguments <- arguments_of(of, call)
  made <- call_with_arguments(name, arguments, call = call)
  described <- core(convert = TRUE)$describe_for_r(made)
  structure(
    described$values,
    text = as.character(described$text), name = name, arguments = arguments,
    class = c(class, "tfdistr_description")
  )
}

# The object of the core.
python_description <- function(described) {
  call_with_arguments(attr(described, "name"), attr(described, "arguments"), convert = FALSE, call = NULL)
}

#' @rawNamespace S3method(reticulate::r_to_py, tfdistr_description)
r_to_py.tfdistr_description <- function(x, convert = FALSE) { # nolint
  python_description(x)
}

#' @export
format.tfdistr_description <- function(x, ...) attr(x, "text")

#' @export
print.tfdistr_description <- function(x, ...) print_lines(x)

# The elements of the list, without what makes the object of the core.
#' @rawNamespace S3method(utils::str, tfdistr_description)
str.tfdistr_description <- function(object, ...) {
  cat(class(object)[[1L]], ": ", sep = "")
  utils::str(unclass(object)[names(object)], give.attr = FALSE, ...)
}
