test_that("a compiled model goes to the workers, and has the result afterwards", {
  digits <- some_digits()
  model <- small_model()
  train <- function(model, cluster = NULL) {
    distributed_fit(model, digits$x, digits$y, cluster = cluster, batch_size = 64, epochs = 2, seed = 1)
  }
  expected <- train(core()$as_model_factory(model))
  fit <- train(model, local_cluster(2, env = no_gpus()))
  expect_identical(reticulate::py_id(fit$model), reticulate::py_id(model))
  expect_lt(difference(model, expected$model), 1e-6)
  expect_equal(fit$history, expected$history, tolerance = 1e-5)
  expect_identical(as.integer(model$optimizer$iterations$numpy()), 4L)
  again <- train(fit)
  expect_identical(as.integer(again$model$optimizer$iterations$numpy()), 8L)
  expect_lt(tail(again$history$loss, 1L), tail(fit$history$loss, 1L))
})

test_that("a model with an R function cannot go", {
  digits <- some_digits()
  keras <- reticulate::import("keras")
  model <- small_model()
  r_loss <- function(y_true, y_pred) keras$ops$mean(keras$ops$square(y_pred), axis = -1L)
  model$compile("adam", r_loss)
  expect_error(
    distributed_fit(model, digits$x, digits$y, cluster = local_cluster(2)),
    "Cannot serialize `model`.*Received: an R function \\(loss\\).*or pass a function that builds",
    class = "tfdistr_error_argument"
  )
})
