# Callbacks that warn on worker 1.
warning_callbacks <- function() {
  index <- worker_index()
  warns <- function(epoch, logs) if (index == max(num_workers() - 1, 0)) warning("it rains")
  list(reticulate::import("keras")$callbacks$LambdaCallback(on_epoch_end = warns))
}

fit_with_warnings <- function(model, ..., epochs = 2) {
  digits <- some_digits() # nolint: object_usage_linter. A helper.
  distributed_fit(
    model, digits$x, digits$y,
    epochs = epochs, seed = 1, callbacks = warning_callbacks, verbose = 0, ...
  )
}

normalizes <- paste(
  "norm: each worker normalizes with its own rows, so the result is not that of one worker.",
  "BatchNormalization(synchronized = TRUE) normalizes with the rows of all."
)

test_that("warnings of workers arrive once, as R's, with the worker whose code has warned", {
  given <- warnings_of(fit <- fit_with_warnings(normalizing_model, cluster = local_cluster(2)))
  expect_identical(vapply(given, conditionMessage, ""), c(normalizes, "Worker 1: it rains"))
  expect_identical(lapply(given, `[[`, "worker"), list(NULL, 1L))
  for (condition in given) expect_s3_class(condition, "tfdistr_warning")
  log <- readLines(fit$workers$log[[2L]])
  expect_identical(grep("it rains", log, value = TRUE), rep("Warning: it rains", 2L)) # once for each epoch
})

test_that("a handler that leaves the job, and warn = 2, end the job and its workers", {
  left <- function(code, ...) {
    run_dir <- file.path(withr::local_tempdir(), "run")
    text <- tryCatch(
      fit_with_warnings(normalizing_model, cluster = local_cluster(2), epochs = 1e6, run_dir = run_dir),
      ...
    )
    expect_false(any(runs(pids(run_dir))))
    text
  }
  expect_identical(left(warning = conditionMessage), normalizes)
  withr::local_options(warn = 2)
  expect_identical(left(error = conditionMessage), paste("(converted from warning)", normalizes))
})

test_that("so they do in this process", {
  given <- warnings_of(fit_with_warnings(small_model))
  expect_identical(vapply(given, conditionMessage, ""), rep("it rains", 2L))
  expect_identical(tryCatch(fit_with_warnings(small_model), warning = conditionMessage), "it rains")
  expect_s3_class(suppressWarnings(fit_with_warnings(small_model)), "tfdistr_fit")
  withr::local_options(warn = 2)
  error <- tryCatch(fit_with_warnings(small_model), error = conditionMessage)
  expect_identical(error, "(converted from warning) it rains")
  expect_s3_class(suppressWarnings(fit_with_warnings(small_model)), "tfdistr_fit")
})

test_that("a warning of the core in this process is R's", {
  run_dir <- file.path(withr::local_tempdir(), "run")
  digits <- some_digits()
  train <- function(epochs) {
    distributed_fit(
      small_model, digits$x, digits$y,
      epochs = epochs, seed = 1, verbose = 0, run_dir = run_dir, resume = TRUE
    )
  }
  train(2)
  newest <- max(Sys.glob(file.path(run_dir, "checkpoints", "*.checkpoint")))
  writeBin(utils::head(readBin(newest, "raw", file.size(newest)), -100L), newest)
  expect_match(tryCatch(train(3), warning = conditionMessage), "it is torn")
  given <- warnings_of(fit <- train(3))
  expect_length(given, 1L)
  expect_s3_class(given[[1L]], "tfdistr_warning")
  expect_match(conditionMessage(given[[1L]]), "it is torn")
  expect_length(fit$history$loss, 3L)
})

test_that("a handler of messages may leave an R function that Python has called", {
  called <- function(...) with_conditions(core()$Caller(...)$on_event(NULL))
  says <- function(event) message("so far")
  expect_identical(tryCatch(called(says), message = conditionMessage), "so far\n")
  expect_identical(testthat::capture_messages(called(says)), "so far\n")
  shown <- tryCatch(called(function(event) cli::cli_verbatim("a line")), message = conditionMessage)
  expect_identical(shown, "a line\n")
})
