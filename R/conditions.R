# Errors of the Python core (errors.py) become R conditions. Errors of the R package look the same.

# Raises an error of tfdistr: the rule, then what was received, then the fix.
abort <- function(kind, message, received = NULL, fix = NULL, ..., call = rlang::caller_env()) {
  # rlang shows text unchanged; cli would evaluate the text in braces.
  rlang::abort(
    c(
      message,
      x = if (!is.null(received)) paste("Received:", received),
      i = if (!is.null(fix)) paste("Fix:", fix)
    ),
    class = unique(c(if (kind != "error") paste0("tfdistr_error_", kind), "tfdistr_error")),
    ...,
    call = call
  )
}

# Evaluates code that calls the Python core. An error of the core becomes a condition. An error of an R
# function that the core called is raised unchanged, if `record` has it. Other errors pass unchanged. A
# condition whose handler jumps out of the code ends the work of Python first, see hold_jumps().
with_conditions <- function(expr, record = NULL, call = rlang::caller_env()) {
  held <- new.env()
  tryCatch(
    hold_jumps(expr, held),
    python.builtin.Exception = function(error) {
      if (!is.null(held$condition)) rlang::cnd_signal(held$condition) # and its handler jumps again
      if (!is.null(record$jump)) rlang::cnd_signal(record$jump)
      if (inherits(error, "tfdistr.errors.TfdistrError")) abort_as_in_python(error, call)
      error <- record$error %||% error
      if (is_missing_package(error)) abort_without_packages(error, call)
      if (inherits(error, "tfdistr.errors.TfdistrError")) abort_as_in_python(error, call)
      rlang::cnd_signal(error)
    }
  )
}

# Whether the Python that reticulate has chosen lacks a package that tfdistr needs.
is_missing_package <- function(error) {
  needed <- c("attr", "attrs", "cloudpickle", "jsonschema", "keras", "numpy", "rich", "tensorflow")
  inherits(error, "python.builtin.ModuleNotFoundError") &&
    reticulate::py_to_r(reticulate::py_get_attr(error, "name")) %in% needed
}

abort_without_packages <- function(error, call) {
  abort(
    "version", "The Python that reticulate has chosen must have the packages that tfdistr needs.",
    received = sprintf("%s, in %s", reticulate::py_str(error), reticulate::py_exe()),
    fix = "Call install_tfdistr() and restart R. tfdistr_config() says how this Python was chosen.",
    call = call
  )
}

# An error of the core becomes a condition, with the fields of the error.
abort_as_in_python <- function(error, call) {
  parts <- core(convert = TRUE)$error_for_r(error)
  status <- parts$status
  parts$status <- NULL
  if (!is.null(parts$workers)) parts$workers <- frame_of(parts$workers)
  raise <- function() do.call(abort, c(parts, list(exception = error, call = call)), quote = TRUE)
  if (!is.null(status) && !interactive()) end_of_script(raise, status) else raise()
}

# Raises an error. If nobody catches it, a script ends with this status: schedulers know a preemption by it.
# An uncaught error of R has no status but 1.
end_of_script <- function(raise, status) {
  error <- rlang::catch_cnd(raise(), "error")
  signalCondition(error)
  message(conditionMessage(error))
  quit("no", status = status)
}

# Keeps in `record` the error of an R function that Python is going to call: Python passes on only its
# message. A jump out of the function, by a handler or by callCC(), would leave the frames of Python, and
# break it. It becomes an error, too, and `record$jump` is the last condition, whose handler has jumped.
recorded <- function(fun, record) {
  force(fun)
  function(...) {
    record$error <- record$jump <- NULL
    call <- rlang::env(jumps = TRUE, last = NULL)
    on.exit(if (call$jumps && is_called_by_python()) {
      record$jump <- call$last
      record$error <- rlang::error_cnd(message = "An R function that Python called was left by a jump.")
      invokeRestart("raise_py_exception", record$error)
    })
    value <- withCallingHandlers(
      call_with(fun, ...),
      condition = function(condition) call$last <- condition,
      interrupt = function(condition) call$jumps <- FALSE,
      error = function(error) {
        record$error <- error
        call$jumps <- FALSE
      }
    )
    call$jumps <- FALSE
    value
  }
}

# Calls a function that may have no arguments.
call_with <- function(fun, ...) {
  if (length(formals(args(fun)))) fun(...) else fun()
}

# The class of an error and R's call stack, for the core; NULL if the error did not come from or through R.
r_error <- function(error) {
  attribute <- function(name) reticulate::py_to_r(reticulate::py_get_attr(error, name, silent = TRUE))
  while (!is.null(error)) {
    trace <- attribute("trace")
    if (!is.null(trace)) {
      class <- attribute("r_class") %||% sub(".*[.]", "", class(error)) # an error of Python that R passed on
      return(reticulate::tuple(class[[1L]], format_calls(trace)))
    }
    error <- attribute("__cause__")
  }
}

# R's calls since the last call from Python, without the calls that only connect the two.
format_calls <- function(trace) {
  calls <- vapply(trace$call, function(call) rlang::expr_deparse(call)[[1L]], "")
  begin <- c(
    "reticulate:::call_r_function(", "do.call(fn, c(args, named_args))", "call_with(", "eval(ei, envir)"
  )
  for (between in begin) {
    calls <- calls[seq_along(calls) > max(which(startsWith(calls, between)), 0L)]
  }
  calls <- calls[cumsum(startsWith(calls, ".handleSimpleError(")) == 0L]
  paste(c("R call stack (innermost last):", sprintf("%3d: %s", seq_along(calls), calls)), collapse = "\n")
}
