test_that("a run directory may be the URL of a store", {
  skip_if_not(reticulate::py_module_available("fsspec"))
  url <- paste0("memory://bucket/", basename(tempfile("run-")))
  train <- function(...) {
    distributed_fit(
      small_model, some_digits()$x, some_digits()$y,
      seed = 1, batch_size = 40, checkpoint_every = "epoch", verbose = 0, run_dir = url, ...
    )
  }
  fit <- train(epochs = 1)
  expect_identical(fit$run_dir, url)
  expect_output(print(fit), paste("Run:", url), fixed = TRUE)
  longer <- train(epochs = 2, resume = TRUE)
  expect_length(longer$history$loss, 2L)
  expect_identical(longer$history$loss[[1]], fit$history$loss[[1]])

  error <- expect_error(train(), class = "tfdistr_error_argument")
  expect_match(conditionMessage(error), paste("Received:", url), fixed = TRUE)
  expect_match(conditionMessage(error), "or resume = TRUE to resume", fixed = TRUE)
})
