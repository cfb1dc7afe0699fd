# Warm starts: what a fork of an R process has of its own.

data <- some_digits()
build <- small_model

# Trains on two workers, with callbacks that call `act` at the end of the first epoch.
fit_with <- function(act, ..., warm = TRUE, epochs = 1) {
  distributed_fit(
    build, data$x, data$y,
    cluster = local_cluster(2, warm = warm), epochs = epochs, seed = 1, verbose = 0,
    callbacks = function() {
      keras <- reticulate::import("keras")
      list(keras$callbacks$LambdaCallback(on_epoch_end = function(epoch, logs) act()))
    }, ...
  )
}

# What each worker has printed of `act()`.
said <- function(fit) {
  lines <- lapply(fit$workers$log, readLines)
  lapply(lines, function(worker) sub("^said: ", "", grep("^said: ", worker, value = TRUE)))
}

test_that("forks are R processes of their own", {
  fit <- fit_with(function() {
    cat("said:", tempdir(), "\n")
    cat("said:", dir.exists(tempdir()), "\n")
    cat("said:", commandArgs(TRUE), "\n")
    parent <- file.path("/proc", reticulate::import("os")$getppid(), "cmdline")
    words <- readBin(parent, "raw", 1e4)
    cat("said:", rawToChar(words[words != 0]), "\n")
  })
  told <- said(fit)
  expect_true(all(lengths(told) == 4L))
  folders <- trimws(vapply(told, `[[`, "", 1L))
  expect_length(unique(folders), 2L)
  expect_true(all(startsWith(folders, file.path(fit$run_dir, "tmp"))))
  expect_equal(trimws(vapply(told, `[[`, "", 2L)), c("TRUE", "TRUE"))
  expect_equal(trimws(vapply(told, `[[`, "", 3L)), paste(fit$run_dir, 0:1))
  expect_match(vapply(told, `[[`, "", 4L), "tfdistr:::fork_server", all = TRUE)
  expect_false(any(dir.exists(folders)))
})

test_that("a warm worker trains to the bits of a cold one", {
  fits <- lapply(c(FALSE, TRUE), function(warm) {
    distributed_fit(
      build, data$x, data$y,
      cluster = local_cluster(1, warm = warm), epochs = 2, seed = 3, verbose = 0
    )
  })
  expect_identical(fits[[1L]]$model$get_weights(), fits[[2L]]$model$get_weights())
  expect_identical(fits[[1L]]$history, fits[[2L]]$history)
})

test_that("an R error of a fork is one of its worker, and nothing aborts", {
  folder <- withr::local_tempdir()
  error <- expect_error(
    fit_with(function() stop("no more"), run_dir = folder),
    class = "tfdistr_error_worker_failed"
  )
  expect_equal(error$exit_code, 1L)
  expect_match(conditionMessage(error), "no more")
  logs <- unlist(lapply(error$workers$log, readLines))
  expect_false(any(grepl("terminate called", logs)))
})

test_that("quit() in a fork ends it with that status", {
  folder <- withr::local_tempdir()
  error <- expect_error(
    fit_with(function() quit(save = "no", status = 3L), run_dir = folder),
    class = "tfdistr_error_worker_failed"
  )
  expect_equal(error$exit_code, 3L)
  logs <- unlist(lapply(error$workers$log, readLines))
  expect_false(any(grepl("terminate called", logs)))
})

test_that("stop_warm_workers() returns nothing", {
  expect_null(stop_warm_workers())
})
