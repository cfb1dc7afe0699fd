# The learning rate for a number of workers. In Python: training/learning_rate.py.

#' Compute the learning rate for a global batch that grows with the number of workers
#'
#' The learning rate has to grow if each worker keeps its batch size, as with [per_worker()]. With the same
#' global batch, the steps and the learning rate are the same as with one worker.
#' `per_worker(64, scale_learning_rate = "linear")` scales the learning rate of the optimizer in the same way.
#' With `warmup_epochs` the learning rate rises to this value step by step.
#'
#' @param learning_rate Number above 0: the learning rate of one worker.
#' @param num_workers Number of workers.
#' @param scale String: "linear" multiplies it by the number of workers, "sqrt" by the square root of this
#'   number, "none" does not change it.
#' @return The learning rate, a number.
#' @section Errors: `tfdistr_error_argument` if an argument is not of that form.
#' @source P. Goyal et al. (2017), Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour,
#'   <https://arxiv.org/abs/1706.02677>, for "linear" and the warm-up; A. Krizhevsky (2014), One weird trick
#'   for parallelizing convolutional neural networks, <https://arxiv.org/abs/1404.5997>, for "sqrt".
#' @examplesIf interactive() || nzchar(Sys.getenv("NOT_CRAN"))
#' scaled_learning_rate(0.1, num_workers = 4)
#' scaled_learning_rate(0.1, num_workers = 4, scale = "sqrt")
#' @family functions for training
#' @export
scaled_learning_rate <- function(learning_rate, num_workers, scale = "linear") {
  call_core("scaled_learning_rate")
}
