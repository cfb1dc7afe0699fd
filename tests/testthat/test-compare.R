test_that("strategies are compared in a data frame, R functions in the model included", {
  loss <- function(y_true, y_pred) reticulate::import("keras")$ops$mean((y_true - y_pred)^2, axis = -1L)
  model <- function() {
    keras <- reticulate::import("keras")
    network <- keras$Sequential(list(keras$layers$Dense(1L)))
    network$compile("sgd", loss)
    network
  }
  x <- matrix(sin(1:80), ncol = 2)
  compared <- compare_strategies(
    model, x, x[, 1],
    strategies = list(
      one_device(device = "cpu:0"), "multi_worker_mirrored", model_parallel(function(layer) "worker 1")
    ),
    epochs = 2, batch_size = 16, seed = 1
  )
  expect_s3_class(compared, c("tfdistr_comparison", "data.frame"), exact = TRUE)
  expect_identical(compared$strategy, c("one_device", "multi_worker_mirrored", "model_parallel"))
  expect_identical(compared$workers, c(1L, 2L, 2L))
  expect_equal(compared$loss[[1]], compared$loss[[2]], tolerance = 1e-6)
  expect_equal(compared$seconds_per_epoch * compared$examples_per_second, rep(40, 3L))
  expect_identical(compared$error, rep(NA_character_, 3L))
  file <- withr::local_tempfile(fileext = ".png")
  grDevices::png(file)
  expect_identical(plot(compared), compared)
  grDevices::dev.off()
  expect_gt(file.size(file), 1000)
})
