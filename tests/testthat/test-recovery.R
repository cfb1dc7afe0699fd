dropout_model <- function() {
  keras <- reticulate::import("keras")
  model <- keras$Sequential(list(
    keras$layers$Dense(8L, activation = "relu"), keras$layers$Dropout(0.3), keras$layers$Dense(1L)
  ))
  model$compile("adam", "mse")
  model
}
inputs <- matrix(sin(1:240), ncol = 3)
targets <- inputs[, 1] - inputs[, 2]

# Notes a random number of R at the beginning of each epoch, and fails once at that of number 2.
draws <- function(notes, failed) {
  force(notes)
  force(failed)
  function() {
    callbacks <- reticulate::import("keras")$callbacks
    list(callbacks$LambdaCallback(on_epoch_begin = function(number, logs) {
      if (number == 2 && !file.exists(failed)) {
        file.create(failed)
        stop("the disk is full")
      }
      line <- paste0(number, " ", runif(1), "\n") # as one, for the workers write at the same time
      cat(line, file = notes, append = TRUE)
    }))
  }
}

test_that("a run in this process continues where it failed", {
  run <- withr::local_tempfile()
  train <- function(...) {
    distributed_fit(
      dropout_model, inputs, targets,
      seed = 3, epochs = 3, batch_size = 16, checkpoint_every = 2, verbose = 0, ...
    )
  }
  expected <- train(run_dir = withr::local_tempfile())
  failing <- draws(withr::local_tempfile(), withr::local_tempfile())
  expect_error(train(run_dir = run, callbacks = failing), "the disk is full")
  fit <- train(run_dir = run, callbacks = failing, resume = TRUE)
  expect_identical(fit$history, expected$history)
  expect_identical(fit$model$get_weights(), expected$model$get_weights())
  expect_identical(fit$params$checkpoint_every, 2L)
})

test_that("R's random numbers continue, too", {
  skip_slow("trains in three R sessions")
  train <- function(callbacks, ...) {
    distributed_fit(
      dropout_model, inputs, targets,
      seed = 3, epochs = 4, batch_size = 16, callbacks = callbacks, checkpoint_every = "epoch", verbose = 0,
      ...
    )
  }
  notes <- withr::local_tempfile(lines = character())
  expected <- withr::local_tempfile(lines = character())
  train(draws(expected, notes), run_dir = withr::local_tempfile()) # has failed, for the file is there
  run <- withr::local_tempfile()
  failed <- withr::local_tempfile()
  expect_error(train(draws(notes, failed), run_dir = run), "the disk is full")
  train(draws(notes, failed), run_dir = run, resume = TRUE)
  expect_identical(readLines(notes), readLines(expected))
  expect_length(unique(readLines(notes)), 4L)

  of_workers <- withr::local_tempfile(lines = character())
  train(
    draws(of_workers, withr::local_tempfile()),
    run_dir = withr::local_tempfile(), cluster = local_cluster(2), failures = on_failure(max_restarts = 1)
  )
  expect_setequal(readLines(of_workers), readLines(expected)) # the same on both
})

test_that("a script that is told to end exits with status 75", {
  run <- withr::local_tempfile()
  script <- start_script("told-to-end.R", run)
  script$process$wait(120000)
  expect_identical(script$process$get_exit_status(), 75L)
  expect_match(script$output(), "saved a checkpoint at epoch 2, step", fixed = TRUE)
  fix <- sprintf("Fix: Repeat the call with run_dir = '%s' and resume = TRUE.", normalizePath(run))
  expect_match(script$output(), fix, fixed = TRUE)
})
