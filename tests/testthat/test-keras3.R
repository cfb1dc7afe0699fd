# Models that are written with keras3, in R sessions of their own: keras3 needs a newer reticulate than the
# session of the tests has.

# nolint start: object_usage_linter. The functions of testthat and of helper-jobs.R.
keras3_library <- function() {
  folder <- Sys.getenv("KERAS3_LIBRARY")
  skip_if_not(dir.exists(file.path(folder, "keras3")), "keras3 is not here (tools/setup-keras3.sh)")
  folder
}

# The result of scripts/keras3.R for some cases.
with_keras3 <- function(cases, first = "keras3") {
  libraries <- paste(c(keras3_library(), .libPaths()), collapse = .Platform$path.sep)
  file <- withr::local_tempfile()
  env <- c(R_LIBS = libraries, IMAGES = folder_of_images())
  script <- start_script("keras3.R", c(file, first, cases), env)
  script$process$wait(300000)
  if (!file.exists(file)) stop(script$output())
  readRDS(file)
}

# 60 images of two classes, in two folders.
folder_of_images <- function(frame = parent.frame(2L)) {
  folder <- withr::local_tempdir(.local_envir = frame)
  digits <- some_digits()
  for (number in 1:60) {
    class <- file.path(folder, digits$y[[number]] %% 2L)
    dir.create(class, showWarnings = FALSE)
    png::writePNG(digits$x[number, , , 1L], file.path(class, sprintf("%02d.png", number)))
  }
  folder
}

expect_equal_on_two_workers <- function(result) {
  for (case in names(result)) {
    expect_lt(max(result[[case]]$apart), 1e-6, label = case)
    expect_true(result[[case]]$learns || result[[case]]$epochs == 1L, info = case)
  }
}
# nolint end

test_that("pipes of keras3 train on two workers as on one", {
  result <- with_keras3("sequential")
  expect_equal_on_two_workers(result)
  expect_identical(sort(result$sequential$metrics), c("accuracy", "loss", "val_accuracy", "val_loss"))
})

test_that("they do where keras3 was attached after tfdistr", {
  skip_slow()
  expect_equal_on_two_workers(with_keras3("sequential", first = "tfdistr"))
})

test_that("a compiled model of keras3 goes to the workers, and has the result", {
  skip_slow()
  result <- with_keras3("given")
  expect_equal_on_two_workers(result)
})

test_that("models, classes and functions of keras3 do, too", {
  skip_slow()
  cases <- c("functional", "layer_class", "model_class", "r_metric", "r_loss")
  result <- with_keras3(cases)
  expect_named(result, cases)
  expect_equal_on_two_workers(result)
  expect_true("error" %in% result$r_metric$metrics)
})

test_that("schedules, callbacks and data of keras3 and tfdatasets do, too", {
  skip_slow()
  cases <- c("schedule", "callbacks", "callback_class", "pipeline", "dataset", "images")
  result <- with_keras3(cases)
  expect_named(result, cases)
  expect_equal_on_two_workers(result)
  expect_identical(result$callback_class$epochs, 1L)
})
