# Steps of a run again, where two runs part, and whether a run is what it was. In Python: replays/.

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
#'   (the number of each row in the batch and in the data, its loss, and also `file` and `row_of_file` of data
#'   from files), `gradients` and `updates` (for each weight the norm, the largest entry, and the shares of
#'   NaN and Inf), `inputs`, `weights_before`, `weights_after`, and `cause`: `NULL`, or why the step is not
#'   finite. `plot()`: its argument, invisibly.
#' @section Errors: `tfdistr_error_argument` if `run` has no checkpoints or no such step; if the data, the
#'   model, the callbacks or the version of Keras are not those of the run; or if one process cannot make its
#'   steps again.
#' @examplesIf (interactive() || nzchar(Sys.getenv("NOT_CRAN"))) && requireNamespace("keras3", quietly = TRUE)
#' library(keras3)
#' model <- function() {
#'   keras_model_sequential() |>
#'     layer_dense(1) |>
#'     compile("adam", "mse")
#' }
#' x <- mtcars[c("wt", "qsec")]
#' y <- mtcars$mpg / 20
#' folders <- c(tempfile(), tempfile())
#' for (folder in folders) {
#'   distributed_fit(
#'     model, x, y,
#'     batch_size = 8, epochs = 3, seed = 1, run_dir = folder, checkpoint_every = "epoch"
#'   )
#' }
#' again <- replay(folders[[1]], 10, model, x, y)
#' again
#' again$rows
#' bisect(folders[[1]], folders[[2]])
#' verify(folders[[1]], model, x, y)
#' @family functions to find out why
#' @export
replay <- function(run, step, model, x, y = NULL, ..., sample_weight = NULL, validation_data = NULL,
                   callbacks = NULL) {
  refuse_dots("replay", ...)
  job <- job_again()
  with_conditions(record = job$errors, {
    parts <- withr::with_preserve_seed(rlang::inject(core(convert = TRUE)$replay_for_r(
      run, step, !!!parts_again(job, model, callbacks, x, y, sample_weight, validation_data)
    )))
  })
  tables <- c("steps", "rows", "gradients", "updates")
  parts[tables] <- lapply(parts[tables], frame_of)
  findings(parts, "tfdistr_replay")
}

# The arguments of a call that makes steps of a run again, as the core has them.
parts_again <- function(job, model, callbacks, ...) {
  c(
    list(model = job$part(model, "model"), on_seed = set.seed, callbacks = job$part(callbacks, "callbacks")),
    job$data(...)
  )
}

# What the core has found, with the text that print() shows.
findings <- function(parts, class) {
  structure(parts[names(parts) != "text"], text = parts$text, class = class)
}

# The job of a call that trains again in this process.
job_again <- function(frame = rlang::caller_env(), of = rlang::caller_fn()) {
  arguments_of(of, frame)
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
#' outputs of layers, gradients, updates. If no number differs and `tolerance` is 0, the last step is.
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
#' @param callbacks_b The callbacks of the other run, if they are others.
#' @param tolerance The relative difference of losses, gradient norms and learning rates that is allowed. By
#'   default 0 for runs with the same `virtual_workers`, or on one worker, on the same kind of processor, and
#'   0.001 for others, whose sums are rounded differently.
#' @return A list of class `tfdistr_bisection`, whose `print()` shows the finding in a few lines: the two
#'   `runs`, `step` (`NULL` if no step differs), `compared` (the number of steps that both have),
#'   `tolerance`, `difference`, `differences` of the settings, `confirmed` (whether the replays give the
#'   numbers of the traces), `tensor` (the first one that differs), `by` how much, `rows` of the batch that
#'   differ and their `indices` in the data (from 1; `NULL` if the rows are the same), and the likely
#'   `reason`.
#' @section Errors: `tfdistr_error_argument` if a run has no checkpoints, the runs have no step in common, or
#'   a replay is not possible; see [replay()].
#' @inherit replay examples
#' @family functions to find out why
#' @export
bisect <- function(run_a, run_b, model = NULL, x = NULL, y = NULL, ..., sample_weight = NULL,
                   validation_data = NULL, callbacks = NULL, model_b = NULL, x_b = NULL, y_b = NULL,
                   callbacks_b = NULL, tolerance = NULL) {
  refuse_dots("bisect", ...)
  job <- job_again()
  with_conditions(record = job$errors, {
    parts <- withr::with_preserve_seed(rlang::inject(core(convert = TRUE)$bisect_for_r(
      run_a, run_b, !!!parts_again(job, model, callbacks, x, y, sample_weight, validation_data),
      model_b = job$part(model_b, "model"),
      x_b = job$part(x_b, "data", function(value, call) python_inputs(value, "x_b", call)),
      y_b = python_targets(y_b, "y_b"), callbacks_b = job$part(callbacks_b, "callbacks"),
      tolerance = tolerance
    )))
  })
  findings(parts, "tfdistr_bisection")
}

#' @export
print.tfdistr_bisection <- print.tfdistr_replay

#' Check that the kept files of a run are those of its training
#'
#' Each checkpoint has the hashes of the one before, of the trace and of the job: a file that was changed or
#' exchanged afterwards does not chain. The steps between two kept checkpoints are made again in this process,
#' as [replay()] makes them, and compared: each step with the trace, and the weights, the state of the
#' optimizers and the states of random numbers with the next checkpoint. The steps before the first
#' checkpoint count if it is the first one of the run.
#'
#' It is no proof against somebody who owns all files and can compute their hashes again, and it checks only
#' the steps between checkpoints that are kept: `keep_checkpoints` says how many. Of those that were removed,
#' the later ones have the hash.
#'
#' @inheritParams replay
#' @param x The data of the run, as for [distributed_fit()].
#' @param callbacks The callbacks of the run. Those that write do not run.
#' @param share The share of the intervals to recompute, above 0 and up to 1. The last one is always among
#'   them, because no later checkpoint has its hash; the others are drawn.
#' @param seed The seed of the draw; `NULL` for another draw each time, which nobody can foresee.
#' @param tolerance The relative difference that is allowed. By default 0 for runs with `virtual_workers` or
#'   on one worker if this machine has the same kind of processor, and otherwise 0.001.
#' @return A list of class `tfdistr_verification`, whose `print()` shows the findings in a few lines: `run`,
#'   `agrees`, `steps` (the first and the last one of the trace), `checkpoints` (the steps after which the
#'   whole checkpoints were saved), `chain` (what does not chain, in words; empty if all is whole),
#'   `tolerance`, and the data frame `intervals`: `first_step`, `last_step`, `recomputed`, `agrees` (`NA` if
#'   not recomputed), the largest relative `difference`, the first `step` that differs, and the `reason` why
#'   the steps could not be made again.
#' @section Errors: `tfdistr_error_argument` if the run has too few checkpoints, or one process cannot make
#'   its steps again; see [replay()]. Other data and another model are findings.
#' @inherit replay examples
#' @family functions to find out why
#' @export
verify <- function(run, model, x, y = NULL, ..., sample_weight = NULL, validation_data = NULL,
                   callbacks = NULL, share = 1, seed = NULL, tolerance = NULL) {
  refuse_dots("verify", ...)
  job <- job_again()
  with_conditions(record = job$errors, {
    parts <- withr::with_preserve_seed(rlang::inject(core(convert = TRUE)$verify_for_r(
      run, !!!parts_again(job, model, callbacks, x, y, sample_weight, validation_data),
      share = share, seed = seed, tolerance = tolerance
    )))
  })
  parts$intervals <- frame_of(parts$intervals)
  parts$chain <- as.character(parts$chain)
  findings(parts, "tfdistr_verification")
}

#' @export
print.tfdistr_verification <- print.tfdistr_replay
