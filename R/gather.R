# The rows of all workers, for a loss over the batch.

#' Gather the rows of all workers
#'
#' For a loss that compares the examples of a batch with each other: a contrastive loss (SimCLR, CLIP), a
#' balance term, a distance of distributions. Call it in the loss, in the model or in `train_step()`, in the
#' steps of Keras's `fit()` and of [distributed_fit()]. Every worker then computes the loss of the whole
#' batch, and the gradient is that of one worker, also if the rows are split unevenly.
#'
#' On one worker, outside of a strategy, and while Keras builds a model, it returns its input. With
#' `virtual_workers` it gathers the rows of all of them.
#'
#' @param value A dense tensor (or an array) of shape `(rows, ...)`: numbers or logical values of this
#'   worker's rows.
#' @return A tensor of the same type, with the rows of all workers in the order of the global batch. Its
#'   gradient goes back to these rows.
#' @section Errors: `tfdistr_error_argument` if `value` is not of that form, or if the call is in the scope of
#'   a strategy with several workers, but not in a step of Keras.
#' @examplesIf interactive() || nzchar(Sys.getenv("NOT_CRAN"))
#' # A loss for pairs: each row of `y_pred` has two embeddings, one after the other.
#' pair_loss <- function(y_true, y_pred) {
#'   tf <- reticulate::import("tensorflow")
#'   both <- tf$split(gather(y_pred), 2L, axis = 1L)
#'   logits <- tf$matmul(both[[1]], both[[2]], transpose_b = TRUE)
#'   pairs <- tf$range(tf$shape(logits)[0])
#'   tf$reduce_mean(tf$nn$sparse_softmax_cross_entropy_with_logits(pairs, logits))
#' }
#' gather(array(1:6, c(3, 2)))
#' @family functions for a loop of your own
#' @export
gather <- function(value) {
  call_core("gather")
}
