# nolint start: object_usage_linter, undesirable_operator_linter. in_types is the module of that name.
# Values of R on their way to Python and back, as test_types.py asks for them. In Python: in_types.py.

made_by <- function(code) eval(parse(text = code, encoding = "UTF-8"), new.env(parent = globalenv()))

# The arrays that the core makes of a value.
arrays_of <- function(value, targets = FALSE) {
  convert <- if (targets) tfdistr:::python_targets else tfdistr:::python_data
  in_types$as_arrays(convert(value, "x"))
}

# What a value is in Python, and whether it comes back as the same value.
there_and_back <- function(code, targets) {
  tryCatch(
    {
      value <- made_by(code)
      arrays <- arrays_of(value, targets)
      back <- tfdistr:::values_for_r(arrays)
      differs <- difference_of(plain_value(value, targets), back)
      list(arrays = in_types$described(arrays), differs = if (is.null(differs)) list() else list(differs))
    },
    error = described_error
  )
}

# A value without what Python has no form for: a vector has one dimension, a factor is text or class numbers,
# a data frame of numbers is a matrix. Names of rows and columns are left out.
plain_value <- function(value, targets) {
  if (is.data.frame(value)) {
    columns <- lapply(as.list(value), plain_value, targets)
    numbers <- vapply(columns, function(column) !is.character(column) && length(dim(column)) == 1L, NA)
    if (!length(columns) || !all(numbers)) return(columns)
    made <- do.call(cbind, columns)
    dimnames(made) <- NULL
    storage.mode(made) <- "double"
    return(made)
  }
  if (is.list(value) || is.null(value)) {
    return(if (is.list(value)) lapply(value, plain_value, targets))
  }
  if (is.factor(value)) {
    shape <- dim(value)
    value <- if (targets) as.integer(value) - 1L else as.character(value)
    dim(value) <- shape
  }
  array(value, dim(value) %||% length(value))
}

# Where two values differ; NULL if they do not. NA of type double is NaN in Python.
difference_of <- function(one, other, path = "") {
  if (is.list(one) && is.list(other) && length(one) == length(other)) {
    if (!identical(names(one), names(other)) && length(one)) return(paste0(path, ": names"))
    for (place in seq_along(one)) {
      found <- difference_of(one[[place]], other[[place]], sprintf("%s[[%d]]", path, place))
      if (!is.null(found)) return(found)
    }
    return(NULL)
  }
  if (is.double(one) && is.double(other)) {
    if (identical(is.na(one), is.na(other))) one[is.na(one)] <- other[is.na(other)] <- 0
  }
  if (!identical(one, other)) sprintf("%s: %s and %s", path, deparse1(one), deparse1(other))
}

# nolint end
