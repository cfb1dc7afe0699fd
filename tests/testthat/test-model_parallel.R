two_halves <- function() {
  keras <- reticulate::import("keras")
  model <- keras$Sequential(list(
    keras$layers$Flatten(),
    keras$layers$Dense(16L, activation = "relu", name = "first"),
    keras$layers$Dense(10L, activation = "softmax", name = "second")
  ))
  # A function of R is traced where the chief is.
  loss <- function(y_true, y_pred) keras$losses$sparse_categorical_crossentropy(y_true, y_pred)
  model$compile(keras$optimizers$Adam(0.01), loss, metrics = list("accuracy"))
  model
}

test_that("the two halves of an R model on two workers train as in one process", {
  digits <- some_digits()
  fit <- function(...) {
    distributed_fit(two_halves, digits$x, digits$y, batch_size = 50, epochs = 2, seed = 1, ...)
  }
  alone <- fit()
  halves <- c(first = "worker 0", second = "worker 1")
  by_function <- fit(
    cluster = local_cluster(2),
    strategy = model_parallel(function(layer) if (layer$name %in% names(halves)) halves[[layer$name]])
  )
  expect_equal(by_function$history, alone$history, tolerance = 1e-6)
  expect_lt(difference(by_function$model, alone$model), 1e-6)
  expect_identical(by_function$workers$task, c("worker 0", "worker 1", "chief 0"))

  by_name <- fit(strategy = model_parallel(c(first = "cpu:0", second = "cpu:0")))
  expect_lt(difference(by_name$model, alone$model), 1e-6)
})
