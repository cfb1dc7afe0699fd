# Warnings of the core, and conditions of R functions that Python calls.

# Warns the user, at once: a job may run for hours. worker: Index of the worker whose user code has warned.
# category: "batch_loss" for a warning of the class "tfdistr_warning_batch_loss".
warn_user <- function(message, worker = NULL, category = NULL) {
  if (getOption("warn") == 0) withr::local_options(warn = 1)
  if (!is.null(worker)) message <- sprintf("Worker %d: %s", worker, message)
  classes <- c(sprintf("tfdistr_warning_%s", category), "tfdistr_warning")
  warning(warningCondition(message, worker = worker, class = classes))
}

# Evaluates code in which Python may call functions of R.
#
# A handler of the user, such as tryCatch(warning = ), leaves these functions by a jump. R ends with a
# segmentation fault if it jumps over the frames of Python. So Python gets an error instead, by which it ends
# what it does, and `held$condition` is the condition to signal after that.
hold_jumps <- function(code, held = new.env()) {
  hold <- function(condition, signal, muffle) {
    if (!is_called_by_python()) {
      return()
    }
    jumps <- TRUE
    on.exit(if (jumps) {
      held$condition <- condition
      invokeRestart("raise_py_exception", rlang::error_cnd(message = conditionMessage(condition)))
    })
    jumps <- !signal(condition)
    if (!jumps) invokeRestart(muffle)
  }
  withCallingHandlers(
    code,
    warning = function(condition) hold(condition, signal_warning, "muffleWarning"),
    message = function(condition) hold(condition, signal_message, "muffleMessage")
  )
}

# Whether Python has called the function that runs: reticulate then offers a restart that raises an error in
# Python.
is_called_by_python <- function() {
  for (restart in computeRestarts()) {
    if (identical(restart$name, "raise_py_exception")) {
      return(TRUE)
    }
  }
  FALSE
}

# Signals a condition to the handlers of the user. Returns whether it is done with; a warning that becomes an
# error is not.
signal_warning <- function(condition) {
  if (getOption("warn") < 2) {
    warning(condition)
    return(TRUE)
  }
  withRestarts(
    {
      signalCondition(condition)
      FALSE
    },
    muffleWarning = function() TRUE
  )
}

signal_message <- function(condition) {
  withRestarts(
    {
      signalCondition(condition)
      place <- if (inherits(condition, "cliMessage")) cli::cli_output_connection() else stderr()
      cat(conditionMessage(condition), file = place, sep = "")
    },
    muffleMessage = function() NULL
  )
  TRUE
}
