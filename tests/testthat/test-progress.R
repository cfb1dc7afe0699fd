job_events <- list(
  list(event = "started", worker = 0L, pid = 1L, host = "here"),
  list(event = "started", worker = 1L, pid = 2L, host = "here"),
  list(event = "ready", worker = 0L),
  list(event = "train_begin", worker = 1L, epochs = 2L, steps = 4L),
  list(event = "train_begin", worker = 0L, epochs = 2L, steps = 4L),
  list(event = "log", worker = 1L, line = "a {line} of its output"),
  list(event = "log", worker = NULL, line = "restart 1 of 2"),
  list(event = "epoch_begin", worker = 0L, epoch = 0L),
  list(event = "batch", worker = 0L, epoch = 0L, step = 2L, steps = 4L, metrics = list(loss = 0.75)),
  list(event = "epoch_end", worker = 1L, epoch = 0L, metrics = list(loss = 9), seconds = 9),
  list(event = "epoch_end", worker = 0L, epoch = 0L, metrics = list(loss = 0.5, up = 1e-5), seconds = 1.26),
  list(event = "restart", worker = 1L, reason = "port in use"),
  list(event = "epoch_begin", worker = 0L, epoch = 1L),
  list(event = "train_begin", worker = 0L, epochs = 2L, steps = NULL),
  list(event = "epoch_end", worker = 0L, epoch = 1L, metrics = list(loss = NaN, error = "text"), seconds = 0),
  list(event = "done", worker = 0L, seconds = 3)
)

shown <- function(verbose) {
  cli::cli_fmt({
    display <- make_display(verbose)
    for (event in job_events) display$event(event)
    display$close()
    display$close()
  })
}

test_that("with verbose = 2 there is a line for each epoch of the chief", {
  expect_identical(shown(2), c(
    "[worker 1] a {line} of its output",
    "restart 1 of 2",
    "Epoch 1/2  1.3 s  loss: 0.5000  up: 1.000e-05",
    "Starting the workers again: port in use.",
    "Epoch 2/2  0.0 s  loss: NaN  error: text"
  ))
})

test_that("every display warns once of what all workers say", {
  for (verbose in 0:2) {
    display <- make_display(verbose)
    show <- function(...) display$event(list(event = "warning", ...))
    given <- warnings_of({
      for (worker in 0:1) show(worker = worker, message = "no {number}")
      show(worker = 0L, message = "jit_compile=True")
      show(worker = 1L, message = "x=True", of_user = TRUE)
    })
    display$close()
    said <- c("no {number}", "jit_compile = TRUE", "Worker 1: x=True")
    expect_identical(vapply(given, conditionMessage, ""), said)
    expect_identical(lapply(given, `[[`, "worker"), list(NULL, NULL, 1L))
    for (condition in given) expect_s3_class(condition, c("tfdistr_warning", "warning"))
  }
})

test_that("where no bar can be drawn, verbose = 1 is 2", {
  withr::local_options(cli.dynamic = FALSE)
  expect_identical(shown(1), shown(2))
})

test_that("the bar shows the epoch, the steps and the metrics, and vanishes", {
  script <- testthat::test_path("scripts", "bar.R")
  output <- system2(file.path(R.home("bin"), "Rscript"), c("--vanilla", script), stdout = TRUE, stderr = TRUE)
  text <- paste(output, collapse = "\n")
  expect_match(text, "Starting the workers", fixed = TRUE)
  expect_match(text, "Epoch 1/2 .*2/4 +loss: 0[.]5000")
  expect_match(text, "Epoch 1/2  1.0 s  loss: 0.2500", fixed = TRUE)
  expect_match(text, "Epoch 2/2 +loss: 0[.]1250")
})
