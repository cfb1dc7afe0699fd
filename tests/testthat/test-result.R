# A result as the core gives it, with fixed numbers.
some_fit <- function(batch_size = 64L, workers = 2L, run_dir = "/run", val_loss = c(2, 1), freq = 1L,
                     times = NULL, own_dir = FALSE) {
  rows <- list(
    list(index = 0L, host = "here", pid = 10L, status = "done", seconds = 3.25, log = "/run/0.log"),
    list(index = 1L, host = "here", pid = 11L, status = "done", seconds = 3.5, log = NULL, exit_code = 0L)
  )
  with_times <- function(row, times) c(row, if (!is.null(times)) list(times = times))
  rows <- Map(with_times, rows, times %||% list(NULL))
  params <- list(
    batch_size = batch_size, epochs = 2L, seed = 1L, workers = workers, initial_epoch = 0L,
    validation_freq = freq, batches_of = if (is.null(batch_size)) "data set"
  )
  results <- module_of_core("jobs.result") # nolint: object_usage_linter. helper-jobs.R has it.
  new_fit(results$FitResult(
    history = list(accuracy = c(0.5, 0.75), loss = c(1.5, 0.25), val_loss = as.list(val_loss)),
    params = params, workers = rows[seq_len(workers)], run_dir = run_dir,
    trained = reticulate::import("types")$SimpleNamespace(model = "the model")
  ), own_dir = own_dir)
}

test_that("a result is a list of what the core gives, and has the model", {
  fit <- some_fit()
  expect_identical(fit$history, list(accuracy = c(0.5, 0.75), loss = c(1.5, 0.25), val_loss = c(2, 1)))
  expect_identical(fit[["metrics"]]$accuracy, 0.75)
  expect_identical(fit$params$batch_size, 64L)
  expect_identical(fit$workers, data.frame(
    index = 0:1, host = "here", pid = 10:11, status = "done", seconds = c(3.25, 3.5),
    log = c("/run/0.log", NA)
  ))
  expect_identical(fit$model, "the model")
  expect_identical(fit[["model"]], "the model")
  expect_identical(trained_model(fit), "the model")
  expect_null(fit$nothing)
})

test_that("an error of the model function, called again for the model, is raised as it is", {
  build <- function() rlang::abort("of {R}", class = "my_error")
  errors <- new.env()
  fit <- some_fit()
  later <- reticulate::py_run_string("
class Later:
    def __init__(self, build):
        self.build = build
    @property
    def model(self):
        return self.build()
")$Later
  session <- attr(fit, "session")
  session$result <- later(recorded(build, errors))
  session$errors <- errors
  expect_error(fit$model, "of {R}", fixed = TRUE, class = "my_error")
})

test_that("a saved result has the folder that the user has chosen, and no other", {
  read <- function(fit) unserialize(serialize(fit, NULL))
  expect_identical(some_fit()$run_dir, "/run")
  expect_null(read(some_fit())$run_dir)
  expect_identical(read(some_fit(own_dir = TRUE))$run_dir, "/run")
})

test_that("results are printed and summarized", {
  fit <- some_fit()
  expect_snapshot(fit)
  expect_snapshot(summary(fit))
  fit <- some_fit(batch_size = NULL, workers = 1L, run_dir = NULL)
  expect_snapshot(fit)
  expect_identical(summary(some_fit())$history$loss, c(1.5, 0.25))
  expect_identical(summary(some_fit(val_loss = 2, freq = 2L))$history$val_loss, c(NA, 2))
  expect_output(print(some_fit(val_loss = c(1, NaN))), "  val_loss: NaN\n", fixed = TRUE)
})

test_that("a result shows where the time went, beside its data frame of workers", {
  of_first <- list(computing = 1, waiting_for_peers = 1.5, exchanging = 0.5, callbacks = 0, start = 0.25)
  of_second <- list(computing = 2.5, waiting_for_peers = 0, exchanging = 0.5, callbacks = 0, start = 0.5)
  fit <- some_fit(times = list(of_first, of_second))
  expect_identical(fit$workers, some_fit()$workers)
  expect_snapshot(fit)
  expect_snapshot(summary(fit))
  expect_identical(summary(fit)$times, data.frame(index = 0:1, rbind(
    as.data.frame(of_first), as.data.frame(of_second)
  )))
  expect_match(summary(fit)$bottleneck, "Bottleneck: worker 1. ", fixed = TRUE)
  grDevices::svg(withr::local_tempfile(fileext = ".svg"))
  withr::defer(grDevices::dev.off())
  expect_invisible(plot(summary(fit)))
  expect_error(plot(summary(some_fit())), "no worker has measured its time", class = "tfdistr_error_argument")
  expect_null(summary(some_fit())$times)
  expect_null(summary(some_fit())$bottleneck)
})

test_that("the history as a data frame has a row for each epoch and metric", {
  expect_identical(as.data.frame(some_fit()), data.frame(
    epoch = c(1:2, 1:2, 1:2),
    metric = c("accuracy", "accuracy", "loss", "loss", "loss", "loss"),
    value = c(0.5, 0.75, 1.5, 0.25, 2, 1),
    data = c("training", "training", "training", "training", "validation", "validation")
  ))
})

test_that("plot() draws a panel for each metric and leaves the device as it was", {
  file <- withr::local_tempfile(fileext = ".svg")
  grDevices::svg(file)
  withr::defer(grDevices::dev.off())
  grDevices::dev.control("enable") # keeps what is drawn
  before <- graphics::par("mfrow")
  fit <- some_fit()
  expect_identical(withVisible(plot(fit, lwd = 2)), list(value = fit, visible = FALSE)) # base graphics
  expect_identical(graphics::par("mfrow"), before)
  recorded <- grDevices::recordPlot()
  expect_gt(length(recorded[[1L]]), 0L)
})
