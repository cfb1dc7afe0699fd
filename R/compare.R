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
#' @param strategies Names of strategies, or a named list that has a list of options for each strategy.
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
  rows <- with_conditions({
    arguments <- strategy_options(...)
    core()$check_comparison(epochs, as.list(names(arguments)))
    if (is_python(model)) model <- core()$as_model_factory(model)
    named <- if (is.list(strategies)) reticulate::py_dict(as.list(names(strategies)), unname(strategies))
    runs <- reticulate::iterate(core()$plan_comparison(named %||% as.list(strategies), as.list(workers)))
    lapply(runs, function(run) {
      folder <- tempfile("tfdistr-compare-")
      on.exit(unlink(folder, recursive = TRUE))
      planned <- list(
        cluster = local_cluster(
          reticulate::py_to_r(run$workers),
          ps = reticulate::py_to_r(run$ps), env = env
        ),
        strategy = reticulate::py_to_r(run$strategy), epochs = epochs, run_dir = folder
      )
      given <- utils::modifyList(list(verbose = 0), c(arguments, reticulate::py_to_r(run$options), planned))
      tryCatch(
        {
          fit <- do.call(distributed_fit, c(list(model, x, y), given))
          measured_row(core()$measured(run, python_fit(fit)))
        },
        tfdistr_error = function(error) {
          if (inherits(error, "tfdistr_error_argument")) stop(error) # all runs would fail with it
          measured_row(core()$Measured(run$strategy, run$workers, error = conditionMessage(error)))
        }
      )
    })
  })
  structure(do.call(rbind, rows), class = c("tfdistr_comparison", "data.frame"))
}

measured_row <- function(measured) {
  number <- function(value) if (is.null(value)) NA_real_ else as.numeric(value)
  value <- function(name) reticulate::py_to_r(measured[[name]])
  data.frame(
    strategy = value("strategy"), workers = value("workers"),
    seconds_per_epoch = number(value("seconds_per_epoch")),
    examples_per_second = number(value("examples_per_second")),
    loss = number(value("loss")), error = value("error") %||% NA_character_
  )
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
