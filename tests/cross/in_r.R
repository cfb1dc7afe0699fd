# nolint start: object_usage_linter. in_python is the module of that name.
# Rows as R evaluates them. In Python: in_python.py, which also says what is compared of the values.

`%||%` <- rlang::`%||%`

# The value of an expression of a row, which jsonlite has read.
evaluate_expression <- function(expression) {
  if (!is.list(expression)) {
    return(expression)
  }
  if (is.null(names(expression))) {
    return(lapply(expression, evaluate_expression))
  }
  has <- function(name) name %in% names(expression)
  if (has("call")) {
    do.call(exported(expression$call), evaluate_arguments(expression$arguments), quote = TRUE)
  } else if (has("array")) {
    by_row(unlist(expression$array), unlist(expression$dim), expression$dtype %||% "float64")
  } else if (has("named")) {
    get(expression$named, models)
  } else if (has("made")) {
    get(expression$made, models)()
  } else if (has("tuple")) {
    lapply(expression$tuple, evaluate_expression)
  } else if (has("folder")) {
    file.path(Sys.getenv("TMPDIR"), expression$folder)
  } else {
    evaluate_arguments(expression)
  }
}

evaluate_arguments <- function(arguments) lapply(arguments, evaluate_expression)

exported <- function(name) {
  if (name == "predict") stats::predict else getExportedValue("tfdistr", name)
}

# R's arrays are column by column.
by_row <- function(numbers, dim, dtype) {
  made <- aperm(array(numbers, rev(dim)))
  if (grepl("int", dtype)) storage.mode(made) <- "integer"
  made
}

# The part of a value of R that a row compares, for Python.
see <- function(value, what) {
  seen <- switch(what,
    json = as.list(as.character(value)),
    fields = in_python$see(value, "fields"),
    arrays = value$arrays(),
    fit = {
      numbers <- value$workers[c("index", "status")]
      workers <- lapply(seq_len(nrow(numbers)), function(row) as.list(numbers[row, ]))
      in_python$fit(attr(value, "session")$result, lapply(value$history, as.list), workers)
    },
    columns = as.list(unclass(value)[c("check", "status", "fix")]),
    comparison = unname(Map(list, value$strategy, value$workers)),
    nothing = NULL,
    batches = in_python$seen_in_both(value, "batches"),
    chief_only = in_python$seen_in_both(value, "chief_only"),
    layers = in_python$seen_in_both(value, "layers"),
    value
  )
  in_python$plain(seen)
}

# One way of a row: the observation, or the error, as JSON.
observe <- function(row, way, made) {
  row <- jsonlite::fromJSON(row, simplifyDataFrame = FALSE, simplifyMatrix = FALSE)
  what <- row$see %||% "value"
  tryCatch(
    if (way == "python_from_r") {
      # Arguments that R has made; what a function of tfdistr makes is made by Python.
      value <- in_python$call(row$call, reticulate::py_dict(
        names(row$arguments), unname(lapply(row$arguments, function(argument) {
          if (is.list(argument) && "call" %in% names(argument)) in_python$evaluate(argument)
          else as_argument(evaluate_expression(argument))
        }))
      ))
      in_python$plain(in_python$see(value, what))
    } else if (way == "r_from_python") {
      arguments <- evaluate_made(row$arguments, made)
      see(do.call(exported(row$call), arguments, quote = TRUE), what)
    } else {
      see(evaluate_expression(row[c("call", "arguments")]), what)
    },
    error = described_error
  )
}

# As a user passes it to Python. reticulate makes a list of a vector.
as_argument <- function(value) {
  if (is.numeric(value) && is.null(dim(value)) && length(value) > 1L) as.list(value) else value
}

# The arguments that Python has made, as R gets them; what a function of tfdistr makes is made by R.
evaluate_made <- function(arguments, made) {
  rlang::set_names(lapply(names(arguments), function(name) {
    argument <- arguments[[name]]
    if (is.list(argument) && "call" %in% names(argument)) return(evaluate_expression(argument))
    value <- made[[name]]
    is_function <- inherits(value, "python.builtin.function") || is.function(value)
    if (is_function) value else reticulate::py_to_r(value)
  }), names(arguments))
}

described_error <- function(error) {
  if (inherits(error, "python.builtin.object")) {
    return(list(python = in_python$error(error)))
  }
  text <- conditionMessage(error)
  form <- "(?s)^(.*?)(?:\n\\S Received: (.*?))?(?:\n\\S Fix: (.*))?$"
  parts <- regmatches(text, regexec(form, text, perl = TRUE))[[1L]]
  part <- function(place) if (nzchar(parts[[place]])) parts[[place]]
  list(
    error = list(
      classes = as.list(class(error)), text = text, message = part(2L), received = part(3L), fix = part(4L),
      worker = error$worker, exit_code = error$exit_code, traceback = error$traceback,
      cause = if (!is.null(error$parent)) class(error$parent)[[1L]] else in_python$cause(error$exception)
    )
  )
}

models <- new.env(parent = globalenv())
sys.source(Sys.getenv("MODELS_IN_R"), models)
# nolint end
