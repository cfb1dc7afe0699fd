# Steps and learning rates: what follows from the number of examples, the batch and the workers.

#' Number of steps in an epoch
#'
#' An epoch is one pass over the examples, and every step uses one **global** batch, of which each worker
#' has a part: the number of workers does not change the number of steps. The formula `len(x) // batch_size
#' * num_workers`, which can be read elsewhere, is wrong: with 1,000 examples, a global batch of 256 and 4
#' workers an epoch has 4 steps; the formula gives 12, in which every example is used three times.
#'
#' The last batch of a pass has what is left, or is dropped with `drop_remainder`; with shuffling, other
#' examples are dropped in every epoch. With `steps_per_epoch` in [distributed_fit()] the data is repeated
#' and an epoch ends after so many steps. Passes go on over the ends of epochs, but no batch has examples of
#' two passes: each pass ends with a shorter batch, or with `drop_remainder` with its last full one.
#' Validation uses every example.
#'
#' @param n_examples Number of examples.
#' @param batch_size Number of examples of a **global** batch. Multiply what each worker has by the number of
#'   workers.
#' @param drop_remainder Whether a last batch that is not full is dropped.
#' @return The number of batches, an integer: rounded up, or down with `drop_remainder`.
#' @section Errors: `tfdistr_error_argument` if an argument is not of that form, or if there would be no step
#'   at all.
#' @examplesIf reticulate::py_available(initialize = TRUE)
#' steps_per_epoch(1000, 256)
#' steps_per_epoch(1000, 256, drop_remainder = TRUE)
#' @export
steps_per_epoch <- function(n_examples, batch_size, drop_remainder = FALSE) {
  with_conditions(core("scaling", convert = TRUE)$steps_per_epoch(n_examples, batch_size, drop_remainder))
}

#' Learning rate for several workers
#'
#' The learning rate for a global batch that grows with the number of workers, as with
#' `per_worker_batch_size` of [distributed_fit()]. With the same global batch the steps are those of one
#' worker, and so is the learning rate. `distributed_fit(scale_learning_rate = )` does the same to the
#' optimizer, and `warmup_epochs` has the learning rate rise to it step by step.
#'
#' @param learning_rate Number above 0: the learning rate of one worker.
#' @param num_workers Number of workers.
#' @param scale String: "linear" multiplies it by the number of workers, "sqrt" by the square root of that,
#'   "none" leaves it.
#' @return The learning rate, a number.
#' @section Errors: `tfdistr_error_argument` if an argument is not of that form.
#' @source P. Goyal et al. (2017), Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour,
#'   <https://arxiv.org/abs/1706.02677>, for "linear" and the warm-up; A. Krizhevsky (2014), One weird trick
#'   for parallelizing convolutional neural networks, <https://arxiv.org/abs/1404.5997>, for "sqrt".
#' @examplesIf reticulate::py_available(initialize = TRUE)
#' scaled_learning_rate(0.1, num_workers = 4)
#' scaled_learning_rate(0.1, num_workers = 4, scale = "sqrt")
#' @export
scaled_learning_rate <- function(learning_rate, num_workers, scale = "linear") {
  with_conditions(core("scaling", convert = TRUE)$scaled_learning_rate(learning_rate, num_workers, scale))
}
