# Which strategy is the fastest. In Python: compare.py.

#' Compare the speed of strategies on this machine
#'
#' The model is trained with several strategies and numbers of workers, one after another. Each run has new
#' processes, so that no run affects the next.
#'
#' * `plot()`: plot the examples per second: one bar for each strategy and number of workers.
#'
#' @inheritParams distributed_fit
#' @param ... Further arguments of [distributed_fit()], by name, such as `batch_size`.
#' @param strategies Names of strategies, or a list of names and of strategies with options, such as
#'   `list("one_device", mirrored(devices = "cpu:0"))`.
#' @param workers The number of workers, or several numbers to try. A strategy that trains in one process is
#'   tried with one worker. A strategy with parameter servers gets one server beside the workers.
#' @param epochs Number of epochs, at least 2: the first one is not measured.
#' @param env Named character vector: environment variables for the workers.
#' @param x For `plot()`, what `compare_strategies()` returned.
#' @return A data frame of class `tfdistr_comparison` with a row for each strategy and number of workers:
#'   `strategy`, `workers`, `seconds_per_epoch` (the median of the epochs but the first, in which TensorFlow
#'   compiles the step), `examples_per_second` in such an epoch, `loss` (of the last epoch), and `error` (why
#'   the run has no results). `plot()`: its argument, invisibly.
#' @section Errors:
#'   * `compare_strategies()`: `tfdistr_error_argument` if an argument is not of that form. A run that failed
#'     has an `error`.
#' @examplesIf (interactive() || nzchar(Sys.getenv("NOT_CRAN"))) && requireNamespace("keras3", quietly = TRUE)
#' library(keras3)
#' model <- function() {
#'   keras_model_sequential() |>
#'     layer_flatten() |>
#'     layer_dense(10, activation = "softmax") |>
#'     compile("adam", "sparse_categorical_crossentropy")
#' }
#' compared <- compare_strategies(model, load_dataset("digits"), workers = c(1, 2))
#' compared[c("strategy", "workers", "loss")]
#' plot(compared)
#' @family functions for training
#' @export
compare_strategies <- function(model, x, y = NULL, ..., strategies = c("one_device", "multi_worker_mirrored"),
                               workers = 2, epochs = 3, env = NULL) {
  arguments <- named_dots(...)
  strategies <- if (inherits(strategies, "tfdistr_strategy")) list(strategies) else as.list(strategies)
  record <- new.env()
  compared <- with_conditions(record = record, {
    if (is_python(model)) model <- core()$as_model_factory(model)
    made <- lapply(strategies, plain_argument)
    train <- function(given) {
      given <- utils::modifyList(utils::modifyList(list(verbose = 0), arguments, keep.null = TRUE), given)
      given$strategy <- strategy_of_r(given$strategy, made, strategies)
      do.call(distributed_fit, c(list(model, x, y), given), quote = TRUE)
    }
    core(convert = TRUE)$compare(
      trainer(train, record),
      strategies = made, workers = as.list(workers), epochs = epochs, env = as_mapping(env),
      arguments = as.list(names(arguments)), words = function(error) conditionMessage(record$condition)
    )
  })
  structure(frame_of(compared$columns()), class = c("tfdistr_comparison", "data.frame"))
}

# The strategy of the user for the object of the core: it has the R function of model_parallel().
strategy_of_r <- function(given, made, strategies) {
  same <- function(strategy) is_python(strategy) && reticulate::py_id(strategy) == reticulate::py_id(given)
  if (is_python(given)) strategies[[Position(same, made)]] else given
}

#' @rdname compare_strategies
#' @export
plot.tfdistr_comparison <- function(x, ...) {
  labels <- paste(x$strategy, x$workers, sep = ", ")
  before <- graphics::par(mar = graphics::par("mar") + c(0, max(nchar(labels)) / 3, 0, 0))
  on.exit(graphics::par(before))
  graphics::barplot(
    rev(x$examples_per_second), names.arg = rev(labels), horiz = TRUE, las = 1L,
    xlab = "examples per second", ...
  )
  invisible(x)
}
