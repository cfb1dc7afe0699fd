# The number of steps in an epoch. In Python: data/order/steps.py.

#' Compute the number of steps in an epoch
#'
#' An epoch is one pass over the examples. The number of workers does not change the number of steps: every
#' step uses one **global** batch, and each worker has a part of it. Some texts use the formula
#' `length(x) %/% batch_size * num_workers`, which is wrong. With 1,000 examples, a global batch of 256 and 4
#' workers, an epoch has 4 steps. The formula gives 12, in which every example is used three times. If
#' `batch_size` is the batch of each worker, 64, the formula gives 60 steps for a pass of 4.
#'
#' The last batch of a pass has the remaining examples, or is dropped with `drop_remainder`. With shuffling,
#' every epoch drops other examples. With `steps_per_epoch` in [distributed_fit()] the data is repeated, and
#' an epoch ends after this number of steps. A pass may continue in the next epoch, but no batch has examples
#' of two passes: each pass ends with a shorter batch, or, with `drop_remainder`, with its last full batch.
#' Validation uses every example.
#'
#' @param n_examples Number of examples.
#' @param batch_size Number of examples of a **global** batch: the batch of one worker times the number of
#'   workers.
#' @param drop_remainder Whether a last batch that is not full is dropped.
#' @return The number of batches, an integer: rounded up, or down with `drop_remainder`.
#' @section Errors: `tfdistr_error_argument` if an argument is not of that form, or if there would be no step
#'   at all.
#' @examplesIf interactive() || nzchar(Sys.getenv("NOT_CRAN"))
#' steps_per_epoch(1000, 256)
#' steps_per_epoch(1000, 256, drop_remainder = TRUE)
#' @family functions for training
#' @export
steps_per_epoch <- function(n_examples, batch_size, drop_remainder = FALSE) {
  with_conditions(values_for_r(core()$steps_per_epoch(n_examples, batch_size, drop_remainder)))
}
