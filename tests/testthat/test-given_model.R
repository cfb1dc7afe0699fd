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

test_that("a model with R code trains in this session, and only there", {
  keras <- reticulate::import("keras")
  tf <- reticulate::import("tensorflow")
  loss <- function(y_true, y_pred) tf$reduce_mean((tf$cast(y_true, "float32") - y_pred)^2)
  build <- function() {
    dense <- keras$layers$Dense(1L, kernel_initializer = "ones")
    model <- keras$Sequential(list(keras$Input(list(2L)), dense))
    model$compile("sgd", loss)
    model
  }
  x <- matrix(1:20, 10) / 20
  y <- matrix(1:10) / 10
  train <- function(model, ...) distributed_fit(model, x, y, seed = 1, verbose = 0, ...)
  model <- build()
  fit <- train(model, epochs = 2)
  by_function <- train(build, epochs = 2)
  expect_identical(fit$history, by_function$history)
  expect_identical(model$get_weights(), by_function$model$get_weights())
  expect_identical(evaluate(fit, x, y), evaluate(by_function, x, y))
  expect_length(train(fit, epochs = 3, initial_epoch = 3)$history$loss, 1L)
  refused <- function(...) {
    error <- expect_error(train(model, ...), class = "tfdistr_error_argument")
    said <- "it has R code.*Received: an R function or class \\(loss\\).*Fix: Pass the function that makes it"
    expect_match(conditionMessage(error), said)
  }
  refused(cluster = local_cluster(2))
  refused(virtual_workers = 2)
  refused(strategy = "mirrored")
  expect_error(compare_strategies(model, x, y), "it has R code", class = "tfdistr_error_argument")
})
