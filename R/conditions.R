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
      if (!inherits(error, "tfdistr.errors.TfdistrError")) error <- record$error %||% error
      if (is_missing_package(error)) abort_without_packages(error, call)
      if (inherits(error, "tfdistr.errors.TfdistrError")) abort_as_in_python(error, call)
      rlang::cnd_signal(error)
    }
  )
}

# Evaluates code whose errors of a class name the call of the user. Those that end a script with a status of
# its own do not change, see end_of_script().
with_call <- function(code, call, class = "tfdistr_error") {
  withCallingHandlers(code, error = function(error) {
    if (inherits(error, class) && !inherits(error, "tfdistr_error_job_stopped")) {
      error$call <- rlang::error_call(call)
      rlang::cnd_signal(error)
    }
  })
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
  if (!is.null(status) && is_script()) end_of_script(raise, status) else raise()
}

# Whether this process is `Rscript file.R` or `Rscript -e code`, which has no code of its own for uncaught
# errors. It is neither a session that somebody uses nor an R inside another program.
is_script <- function(arguments = commandArgs()) {
  arguments <- arguments[cumsum(arguments == "--args") == 0L]
  !interactive() && any(grepl("^(--file=|-e$)", arguments)) && is.null(getOption("error"))
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
# break it. It becomes an error as well, and `record$jump` is the last condition, whose handler has jumped.
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

# Calls a function that may have no arguments, by its name in the call stack.
call_with <- function(fun, ..., .name = "fun") {
  name <- .name
  assign(name, fun)
  do.call(name, if (length(formals(args(fun)))) list(...) else list(), quote = TRUE)
}

# The class of an error with the call that failed, and R's calls, for the core; NULL if the error did not come
# from or through R.
r_error <- function(error) {
  attribute <- function(name) reticulate::py_to_r(reticulate::py_get_attr(error, name, silent = TRUE))
  while (!is.null(error)) {
    trace <- attribute("trace")
    if (!is.null(trace)) {
      class <- attribute("r_class") %||% sub(".*[.]", "", class(error)) # an error of Python that R passed on
      calls <- own_calls(trace$call)
      failed <- Filter(Negate(signals), calls)
      place <- if (length(failed)) paste(" in", shown_call(failed[[length(failed)]]))
      return(reticulate::tuple(paste0(class[[1L]], place), format_calls(calls)))
    }
    error <- attribute("__cause__")
  }
}

format_calls <- function(calls) {
  lines <- sprintf("%3d: %s", seq_along(calls), vapply(calls, shown_call, ""))
  paste(c("R call stack (innermost last):", lines), collapse = "\n")
}

# R's calls since the last call from Python, without the calls that only connect the two.
own_calls <- function(calls) {
  shown <- vapply(calls, function(call) rlang::expr_deparse(call)[[1L]], "")
  between <- c(
    "reticulate:::call_r_function(", "do.call(fn, c(args, named_args))", "call_with(", "do.call(name, ",
    "eval(ei, envir)"
  )
  begins <- lapply(between, function(call) which(startsWith(shown, call)))
  first <- max(unlist(begins), 0L) + 1L
  ends <- which(startsWith(shown, ".handleSimpleError("))
  last <- min(ends[ends > first], length(calls) + 1L) - 1L
  calls[seq_len(length(calls)) >= first & seq_len(length(calls)) <= last]
}

signals <- function(call) rlang::is_call(call, c("stop", "abort", "stopifnot", "cli_abort"))

# A call with the place of its code, where R has kept it.
shown_call <- function(call) {
  place <- attr(call, "srcref")
  file <- if (!is.null(place)) attr(place, "srcfile")$filename
  attributes(call) <- NULL
  shown <- rlang::expr_deparse(call)[[1L]]
  if (is.null(file) || !nzchar(file)) shown else sprintf("%s (%s#%d)", shown, basename(file), place[[1L]])
}
