model <- function() {
  keras3::keras_model_sequential(input_shape = 4L) |>
    keras3::layer_dense(6, activation = "tanh") |>
    keras3::layer_dropout(0.2) |>
    keras3::layer_dense(1) |>
    keras3::compile("sgd", "mse")
}

trained <- function(folder, ...) {
  distributed_fit(
    model, as.matrix(iris[1:4]), iris$Sepal.Length,
    batch_size = 10, epochs = 2, seed = 3, run_dir = folder, checkpoint_every = "epoch", verbose = 0, ...
  )
}

test_that("a step is made again, with tables, text and a plot", {
  skip_if_not_installed("keras3")
  folder <- withr::local_tempfile()
  trained(folder)
  again <- replay(folder, 20, model, as.matrix(iris[1:4]), iris$Sepal.Length)
  expect_s3_class(again, "tfdistr_replay")
  expect_identical(again$difference, 0)
  expect_identical(again$rows$row, 1:10)
  expect_equal(again$inputs[[1]][, 1], iris[again$rows$index, 1], tolerance = 1e-6)
  expect_named(again$gradients, c("layer", "weight", "norm", "largest", "nan", "inf"))
  expect_length(again$weights_before, 4L)
  expect_null(again$cause)
  expect_output(print(again), "Step 20 of ")
  expect_output(print(again), paste0("10 rows, ", again$rows$index[[1L]], ", "), fixed = TRUE)
  worst <- which.max(again$rows$loss)
  expect_output(print(again), paste0("of row ", worst, ", .*counted from 1"))
  withr::local_pdf(NULL)
  expect_invisible(plot(again))
  absent <- expect_error(replay(folder, 20), "`model` must have a value", class = "tfdistr_error_argument")
  expect_identical(conditionCall(absent), quote(replay(folder, 20)))
  later <- quote(replay(folder, 31, model, as.matrix(iris[1:4]), iris$Sepal.Length))
  expect_error(eval(later), class = "tfdistr_error_argument")
})

test_that("a step that is no number names the row", {
  skip_if_not_installed("keras3")
  folder <- withr::local_tempfile()
  x <- as.matrix(iris[1:4])
  x[77, 2] <- NaN
  suppressWarnings(distributed_fit(
    model, x, iris$Sepal.Length,
    batch_size = 10, epochs = 1, seed = 3, run_dir = folder, checkpoint_every = "epoch", verbose = 0
  ))
  again <- suppressWarnings(replay(folder, "nan", model, x, iris$Sepal.Length))
  expect_identical(again$cause$where, "inputs")
  expect_identical(again$rows$index[again$cause$rows], 77L)
  expect_match(again$cause$lines, ", 77 of the data (counted from 1)", fixed = TRUE, all = FALSE)
})

test_that("two runs that are the same, and two that are not", {
  skip_if_not_installed("keras3")
  folders <- c(withr::local_tempfile(), withr::local_tempfile(), withr::local_tempfile())
  trained(folders[[1]])
  trained(folders[[2]])
  trained(folders[[3]], shuffle = FALSE)
  same <- bisect(folders[[1]], folders[[2]])
  expect_null(same$step)
  expect_output(print(same), "agree in all 30 steps")
  other <- bisect(
    folders[[1]], folders[[3]], model, as.matrix(iris[1:4]), iris$Sepal.Length,
    validation_data = list(as.matrix(iris[1:4]), iris$Sepal.Length)
  )
  expect_identical(c(other$step, other$reason), c("1", "settings"))
  expect_identical(other$differences, list(shuffle = c("TRUE", "FALSE")))
  failing <- function() rlang::abort("no model", class = "of_model_b")
  x <- as.matrix(iris[1:4])
  of_b <- quote(bisect(folders[[1]], folders[[3]], model, x, iris$Sepal.Length, model_b = failing))
  expect_error(eval(of_b), class = "of_model_b")
})

test_that("a job ends with the cause of its NaN", {
  skip_if_not_installed("keras3")
  x <- as.matrix(iris[1:4])
  x[77, 2] <- NaN
  job <- quote(suppressWarnings(distributed_fit(
    model, x, iris$Sepal.Length,
    batch_size = 10, epochs = 1, seed = 3, run_dir = withr::local_tempfile(), verbose = 0,
    failures = on_failure(nan = "explain")
  )))
  error <- expect_error(eval(job), class = "tfdistr_error_not_finite")
  expect_match(conditionMessage(error), "77 of the data (counted from 1)", fixed = TRUE)
})

test_that("a run agrees with its training, and a changed file does not", {
  skip_if_not_installed("keras3")
  folder <- withr::local_tempfile()
  trained(folder)
  x <- as.matrix(iris[1:4])
  found <- verify(folder, model, x, iris$Sepal.Length, share = 0.5, seed = 1)
  expect_s3_class(found, "tfdistr_verification")
  expect_true(found$agrees)
  expect_identical(found$chain, character())
  expect_identical(found$checkpoints, c(15L, 30L))
  expect_identical(found$intervals$first_step, c(1L, 16L))
  expect_identical(found$intervals$recomputed, c(FALSE, TRUE))
  expect_identical(found$intervals$agrees, c(NA, TRUE))
  expect_identical(found$intervals$difference, c(NA, 0))
  expect_output(print(found), "agrees with its training: 1 of 2 intervals")
  trace <- file.path(folder, "trace.jsonl")
  writeLines(sub('("step": 20, .*"loss": )', "\\11", readLines(trace)), trace)
  changed <- verify(folder, model, x, iris$Sepal.Length)
  expect_false(changed$agrees)
  expect_identical(changed$intervals$step, c(NA, 20L))
  expect_length(changed$chain, 1L)
  expect_error(verify(folder, model, x, iris$Sepal.Length, share = 2), class = "tfdistr_error_argument")
})

test_that("an error of an argument names the function that was called", {
  plain <- function() NULL
  day <- as.Date("2020-01-01")
  calls <- list(
    quote(replay("/none", 1, plain, 1, day)), quote(bisect("/none", "/none", plain, 1, day)),
    quote(verify("/none", plain, 1, day))
  )
  for (call in calls) {
    error <- expect_error(eval(call), "`y` must hold numbers", class = "tfdistr_error_argument")
    expect_identical(conditionCall(error)[[1L]], call[[1L]])
  }
})
