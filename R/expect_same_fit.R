# Whether a model gives the same result on any number of workers. In Python: testing.py.

#' Test whether a model gives the same result on any number of workers
#'
#' An expectation of testthat, for tests of your own model. Trains the model with [distributed_fit()] on
#' `local_cluster(n)` for each number of workers. The weights, all variables of the optimizer, the history and
#' the outputs for the first batch are compared with those of the lowest number of workers. One worker, too,
#' is a process of its own: so all trainings have the same environment.
#'
#' If the results differ, the expectation fails. The message has the first difference, the first epoch whose
#' history differs, the reason and the fix. For the reason, the lowest number of workers first trains again,
#' to see whether its results repeat. The reason is then what the fit itself knows
#' (`fit$params$differences`). If it knows none, the first step that differs is named. The message says
#' "Reason" if the check of the first batch or a further training has shown it, else "Likely reason". Indices
#' in the message count from 0.
#'
#' @inheritParams distributed_fit
#' @param model Function without arguments that builds and compiles the model, or a compiled model, which is
#'   not changed: each training has a copy.
#' @param ... Further arguments of [distributed_fit()], by name, such as `epochs`. The default of `seed` is 1,
#'   that of `verbose` is 0. The comparison chooses `cluster`, `strategy` and `run_dir` itself.
#' @param workers At least two different numbers of workers.
#' @param tolerance Number: the largest difference that is allowed, absolute for values up to 1, else relative
#'   to the largest value of the array. `NULL` for 1e-6, or 0 with `virtual_workers`: the same bits. The
#'   outputs may differ by 10 times as much, because the differences of the weights add up in them.
#' @return A list of the results of [distributed_fit()], in the order of the number of workers, invisibly.
#' @section Errors: `tfdistr_error_argument` if an argument is not of that form;
#'   `tfdistr_error_cluster_start` if the workers could not be started or did not find each other;
#'   `tfdistr_error_worker_failed` if the training failed.
#' @examplesIf (interactive() || nzchar(Sys.getenv("NOT_CRAN"))) && requireNamespace("keras3", quietly = TRUE)
#' library(keras3)
#' digits <- load_dataset("digits", "test")
#' with_layer <- function(layer = identity) {
#'   keras_model_sequential() |>
#'     layer_rescaling(1 / 16) |>
#'     layer_flatten() |>
#'     layer() |>
#'     layer_dense(10, activation = "softmax") |>
#'     compile("sgd", "sparse_categorical_crossentropy")
#' }
#' model <- function() with_layer()
#' fits <- expect_same_fit(model, digits)
#' fits[[2]]$params$workers
#'
#' # A layer that draws random numbers: the message of the expectation says so.
#' dropout <- function() with_layer(\(x) layer_dropout(x, 0.5))
#' failed <- tryCatch(expect_same_fit(dropout, digits), expectation = identity)
#' cat(conditionMessage(failed))
#' expect_same_fit(dropout, digits, virtual_workers = 2)
#' @family functions for training
#' @export
expect_same_fit <- function(model, x, y = NULL, ..., workers = c(1, 2), tolerance = NULL) {
  rlang::check_installed("testthat")
  arguments <- named_dots(...)
  record <- new.env()
  # The core needs the names of all arguments, and the values of some. For others it gets and gives back TRUE.
  read <- c("virtual_workers", "strategy", "batch_size")
  known <- arguments
  known[!(names(known) %in% read | vapply(known, is.null, NA))] <- TRUE
  train <- function(workers, given) {
    own <- setdiff(names(given), "run_dir")
    given[own] <- Map(function(name, value) arguments[[name]] %||% value, own, given[own])
    fit <- do.call(
      distributed_fit, c(list(model, x, y, cluster = local_cluster(workers)), given), quote = TRUE
    )
    if (is.null(given$run_dir)) record$fits <- c(record$fits, list(fit))
    fit
  }
  predict_first <- function(place) {
    use_fit(
      record$fits[[place + 1L]], core()$predict, x, NULL,
      batch_size = arguments$batch_size, steps = 1, output = NULL, output_format = "npy"
    )
  }
  differ <- with_conditions(record = record, {
    fit <- if (inherits(model, "tfdistr_fit")) python_fit(model) # which the core refuses
    plan <- core()$plan_same_fit(fit, as.list(workers), tolerance, dictionary(known))
    if (is_python(model)) model <- core()$as_model_factory(model)
    core(convert = TRUE)$compare_fits(plan, trainer(train, record), recorded(predict_first, record))
  })
  if (is.null(differ)) {
    testthat::succeed("The fits are the same.")
  } else {
    testthat::fail(core(convert = TRUE)$in_r(differ), trace_env = rlang::caller_env())
  }
  invisible(record$fits)
}
