# Which callbacks run where. In Python: strategies/callbacks.py.

#' Mark a callback that runs on the chief alone
#'
#' The mark is for callbacks that write files or print. Under [multi_worker_mirrored_strategy()] and in
#' [distributed_fit()] the methods of the callback are then called on the chief only. They may read metrics,
#' weights and the optimizer, save the model, and set `model$stop_training`; they can't train, evaluate or
#' predict, which need all workers. Keras's own callbacks that write (`BackupAndRestore`, `CSVLogger`,
#' `ModelCheckpoint`, `RemoteMonitor`, `TensorBoard`) need no mark, nor do those of MLflow, of Weights &
#' Biases and of TensorBoard's HParams plugin.
#'
#' @param callback A Keras callback.
#' @return The callback.
#' @section Errors: `tfdistr_error_argument` if it is not a Keras callback.
#' @examplesIf (interactive() || nzchar(Sys.getenv("NOT_CRAN"))) && requireNamespace("keras3", quietly = TRUE)
#' show <- keras3::callback_lambda(on_epoch_end = function(epoch, logs) print(logs))
#' callbacks <- list(chief_only(show))
#' @family functions for training
#' @export
chief_only <- function(callback) {
  call_core("chief_only")
}

#' Call a function in this session at the end of each epoch
#'
#' The function may use whatever this session has: its variables, connections, a Shiny session, a progress
#' bar. It is not sent to the workers. [distributed_fit()] calls it after the validation and all other
#' callbacks of the epoch. The next epoch waits for it.
#'
#' @param on_epoch_end Function of two arguments: the number of the epoch, from 1 as in keras3, and a named
#'   list of the logs of all workers, the values that `fit$history` gets for this epoch. If it returns the
#'   string "stop", all workers stop after this epoch. Any other value is ignored. If it raises an error, the
#'   workers end, and `distributed_fit()` raises the same error.
#' @return A Python object: the callback, for the list `callbacks` of `distributed_fit()`.
#' @section Errors: `tfdistr_error_argument` if it is no function that takes two arguments.
#' @examplesIf interactive() || nzchar(Sys.getenv("NOT_CRAN"))
#' model <- function() {
#'   keras <- reticulate::import("keras")
#'   model <- keras$Sequential(list(keras$layers$Dense(1L)))
#'   model$compile("sgd", "mse")
#'   model
#' }
#' losses <- c()
#' show <- in_session(function(epoch, logs) losses <<- c(losses, logs$loss))
#' fit <- distributed_fit(
#'   model, as.matrix(mtcars["wt"]), mtcars$mpg / 20,
#'   cluster = local_cluster(workers = 2), epochs = 2, callbacks = list(show)
#' )
#' identical(losses, fit$history$loss)
#' @family functions for training
#' @export
in_session <- function(on_epoch_end) {
  if (is_r_function(on_epoch_end)) {
    check_hook(on_epoch_end)
    on_epoch_end <- called_in_session(on_epoch_end)
  }
  call_core("in_session", convert = FALSE)
}

# Refuses a function that does not take an epoch and its logs. Python sees no arguments of an R function.
check_hook <- function(fun, call = rlang::caller_env()) {
  arguments <- formals(args(fun))
  dots <- names(arguments) == "..."
  needed <- vapply(arguments, function(default) is.symbol(default) && !nzchar(default), NA)
  if ((!any(dots) && length(arguments) < 2L) || sum(needed[!dots]) > 2L) {
    with_conditions(call = call, core()$refuse_hook(
      sprintf("a function of (%s)", paste(names(arguments), collapse = ", "))
    ))
  }
}

# The function as Python calls it. Its value may be an object that Python cannot have.
called_in_session <- function(fun) {
  force(fun)
  function(epoch, logs) {
    errors <- running$errors %||% new.env()
    epoch <- as.integer(reticulate::py_to_r(epoch)) + 1L
    value <- recorded(fun, errors)(epoch, reticulate::py_to_r(logs))
    if (rlang::is_string(value)) value
  }
}

# The job that runs: `errors` records the error of an R function, see recorded().
running <- new.env(parent = emptyenv())

# Makes the record of the job that runs until the end of a frame.
errors_in_session <- function(frame) {
  before <- running$errors
  withr::defer(assign("errors", before, running), envir = frame)
  running$errors <- new.env(parent = emptyenv()) # a saved fit has it
}
