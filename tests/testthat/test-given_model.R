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

test_that("a model whose class overrides compile() goes with the arguments of its compile()", {
  python <- reticulate::py_run_string(paste(
    "import keras",
    "class Task(keras.Sequential):",
    "    def compile(self, optimizer='auto', loss='auto', *, temperature=1.0, **kwargs):",
    "        optimizer = keras.optimizers.Adam(0.01) if optimizer == 'auto' else optimizer",
    "        loss = 'sparse_categorical_crossentropy' if loss == 'auto' else loss",
    "        super().compile(optimizer=optimizer, loss=loss, **kwargs)",
    "        self.temperature = temperature",
    sep = "\n"
  ), convert = FALSE)
  layers <- reticulate::import("keras")$layers
  digits <- some_digits()
  model <- python$Task(list(layers$Flatten(), layers$Dense(10L, activation = "softmax")))
  model$compile(metrics = list("accuracy"), temperature = 2)
  copy <- core()$as_model_factory(model)()
  expect_identical(as.numeric(reticulate::py_to_r(copy$temperature)), 2)
  fit <- distributed_fit(model, digits$x, digits$y, cluster = local_cluster(2, env = no_gpus()), seed = 1)
  expect_identical(reticulate::py_id(fit$model), reticulate::py_id(model))
  expect_named(fit$history, c("accuracy", "loss"), ignore.order = TRUE)
})
