# Steps of a run again, and where two runs part. In Python: replays/.

#' Make any step of a run again
#'
#' The result shows its rows, losses, gradients and updates. The run must have been trained by
#' [distributed_fit()] with checkpoints in `run_dir`. The training starts again in this process at the
#' nearest checkpoint before the step, or at its start, with the seed, the batches and the virtual workers of
#' the run. The steps that are made again are compared with the trace of
#' the run. With `virtual_workers`, and for runs on one worker, they are bitwise identical on the same kind of
#' processor. The rows of several workers without `virtual_workers` are computed as shares, which differ by
#' rounding.
#'
#' Nothing of the run is executed: the model, the data and the callbacks are yours. Nothing is written.
#'
#' * `plot()`: plot the loss and the gradient norm of the steps that lead to this one.
#'
#' @param run The folder or the URL of the run: its `run_dir`.
#' @param step The number of the step, counted from 1 over all epochs. Or `"nan"` for the first step whose
#'   loss or gradients are not finite, or the step before, if its update has made the weights so: `cause` then
#'   names the first tensor that was not finite.
#' @param model The model function of the run.
#' @param x The data of the run, as for [distributed_fit()]. For `plot()`, what `replay()` returned.
#' @param y Targets, where `x` is arrays.
#' @param ... Not used: the arguments after `y` must be named. For `plot()`, not used.
#' @param sample_weight Weights of the examples, if the run had them.
#' @param validation_data The validation data of the run. Callbacks that decide by it need it.
#' @param callbacks The callbacks of the run, as for [distributed_fit()]. Those that write, trackers, and
#'   those marked by [chief_only()] do not run.
#' @return A list of class `tfdistr_replay`, whose `print()` shows the step in a few lines: `run`, `step`,
#'   `epoch`, `loss` of the whole batch, `difference` (the largest relative difference of losses, gradient
#'   norms and learning rates from the trace; 0 means the same to the bit), the data frames `steps`, `rows`
#'   (the number of each row in the batch and in the data, and its loss), `gradients` and `updates` (for each
#'   weight the norm, the largest entry, and the shares of NaN and Inf), `inputs`, `weights_before`,
#'   `weights_after`, and `cause`: `NULL`, or why the step is not finite. `plot()`: its argument, invisibly.
#' @section Errors: `tfdistr_error_argument` if `run` has no checkpoints or no such step; if the data, the
#'   model, the callbacks or the version of Keras are not those of the run; or if one process cannot make its
#'   steps again.
#' @examplesIf (interactive() || nzchar(Sys.getenv("NOT_CRAN"))) && requireNamespace("keras3", quietly = TRUE)
#' library(keras3)
#' model <- function() {
#'   keras_model_sequential() |>
#'     layer_dense(1) |>
#'     compile("sgd", "mse")
#' }
#' folder <- tempfile()
#' fit <- distributed_fit(
#'   model, mtcars[c("wt", "qsec")], mtcars$mpg / 20,
#'   batch_size = 8, epochs = 3, seed = 1, run_dir = folder, checkpoint_every = "epoch"
#' )
#' again <- replay(folder, 10, model, mtcars[c("wt", "qsec")], mtcars$mpg / 20)
#' again
#' again$rows
#' @family functions to find out why
#' @export
replay <- function(run, step, model, x, y = NULL, ..., sample_weight = NULL, validation_data = NULL,
                   callbacks = NULL) {
  refuse_dots("replay", ...)
  job <- job_again()
  with_conditions(record = job$errors, {
    parts <- withr::with_preserve_seed(core(convert = TRUE)$replay_for_r(
      run, step, job$part(model, "model"),
      on_seed = set.seed, x = job$part(x, "data", function(value, call) python_inputs(value, "x", call)),
      y = python_targets(y, "y"), sample_weight = python_data(sample_weight, "sample_weight"),
      validation_data = job$part(validation_data, "validation", function(value, call) {
        python_validation(value, names(x), call)
      }),
      callbacks = job$part(callbacks, "callbacks")
    ))
  })
  tables <- c("steps", "rows", "gradients", "updates")
  parts[tables] <- lapply(parts[tables], frame_of)
  text <- parts$text
  structure(parts[names(parts) != "text"], text = text, class = "tfdistr_replay")
}

# The job of a call that trains again in this process.
job_again <- function(frame = rlang::caller_env()) {
  reload_environ()
  new_job(list(), NULL, NULL, frame = frame)
}

#' @export
print.tfdistr_replay <- function(x, ...) {
  cli::cat_line(attr(x, "text"))
  invisible(x)
}

#' @rdname replay
#' @export
plot.tfdistr_replay <- function(x, ...) {
  before <- graphics::par(mfrow = c(2L, 1L), mar = c(4, 4, 1, 1))
  on.exit(graphics::par(before))
  for (name in c("loss", "norm")) {
    values <- x$steps[[name]]
    values[!is.finite(values)] <- NA
    if (all(is.na(values))) values[] <- 0
    graphics::plot(x$steps$step, values, type = "b", xlab = "step", ylab = name)
    graphics::abline(v = x$step, lty = 3L)
  }
  invisible(x)
}

#' Find the first step in which two runs differ
#'
#' For two runs that should be the same. Their traces are compared. With `model` and `x`, the first step that
#' differs is replayed from the checkpoints of both runs, and the replays are compared: rows, weights,
#' gradients, updates.
#'
#' @inheritParams replay
#' @param run_a The folder or the URL of a run, as for [replay()].
#' @param run_b Those of the other run: of another machine, version, number of workers, or other code.
#' @param model The model function of the runs. Without it, no step is replayed.
#' @param x The data of the runs.
#' @param validation_data The validation data of the runs. Callbacks that decide by it need it.
#' @param callbacks The callbacks of the runs.
#' @param model_b The model function of the other run, if it is another one.
#' @param x_b The data of the other run, if it is other data.
#' @param y_b Its targets.
#' @param tolerance The relative difference of losses, gradient norms and learning rates that is allowed. By
#'   default 0 for runs with the same `virtual_workers`, or on one worker, on the same kind of processor, and
#'   0.001 for others, whose sums are rounded differently.
#' @return A list of class `tfdistr_bisection`, whose `print()` shows the finding in a few lines: `run_a`,
#'   `run_b`, `step` (`NULL` if no step differs), `compared` (the number of steps that both have),
#'   `tolerance`, `difference`, `differences` of the settings, `confirmed` (whether the replays give the
#'   numbers of the traces), `tensor` (the first one that differs), `by` how much, and the likely `reason`.
#' @section Errors: `tfdistr_error_argument` if a run has no checkpoints, the runs have no step in common, or
#'   a replay is not possible; see [replay()].
#' @examplesIf (interactive() || nzchar(Sys.getenv("NOT_CRAN"))) && requireNamespace("keras3", quietly = TRUE)
#' library(keras3)
#' model <- function() {
#'   keras_model_sequential() |>
#'     layer_dense(1) |>
#'     compile("sgd", "mse")
#' }
#' folders <- c(tempfile(), tempfile())
#' for (folder in folders) {
#'   distributed_fit(
#'     model, mtcars[c("wt", "qsec")], mtcars$mpg / 20,
#'     batch_size = 8, epochs = 2, seed = 1, run_dir = folder, checkpoint_every = "epoch"
#'   )
#' }
#' bisect(folders[[1]], folders[[2]])
#' @family functions to find out why
#' @export
bisect <- function(run_a, run_b, model = NULL, x = NULL, y = NULL, ..., sample_weight = NULL,
                   validation_data = NULL, callbacks = NULL, model_b = NULL, x_b = NULL, y_b = NULL,
                   tolerance = NULL) {
  refuse_dots("bisect", ...)
  job <- job_again()
  with_conditions(record = job$errors, {
    parts <- withr::with_preserve_seed(core(convert = TRUE)$bisect_for_r(
      run_a, run_b,
      on_seed = set.seed, model = job$part(model, "model"),
      x = job$part(x, "data", function(value, call) python_inputs(value, "x", call)),
      y = python_targets(y, "y"),
      sample_weight = python_data(sample_weight, "sample_weight"),
      validation_data = job$part(validation_data, "validation", function(value, call) {
        python_validation(value, names(x), call)
      }),
      callbacks = job$part(callbacks, "callbacks"), model_b = job$part(model_b, "model"),
      x_b = job$part(x_b, "data", function(value, call) python_inputs(value, "x_b", call)),
      y_b = python_targets(y_b, "y_b"), tolerance = tolerance
    ))
  })
  text <- parts$text
  structure(parts[names(parts) != "text"], text = text, class = "tfdistr_bisection")
}

#' @export
print.tfdistr_bisection <- function(x, ...) {
  cli::cat_line(attr(x, "text"))
  invisible(x)
}
