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
