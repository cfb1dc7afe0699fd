test_that("virtual workers give identical results on one worker and on two, with R functions", {
  digits <- some_digits()
  model <- function() {
    keras <- reticulate::import("keras")
    layers <- keras$layers
    model <- keras$Sequential(list(
      layers$Conv2D(4L, 3L, activation = "relu"), layers$BatchNormalization(), layers$Flatten(),
      layers$Dropout(0.3), layers$Dense(10L, "softmax")
    ))
    mean_error <- function(y_true, y_pred) {
      losses <- keras$losses$sparse_categorical_crossentropy(y_true, y_pred)
      keras$ops$mean(losses, axis = -1L, keepdims = TRUE)
    }
    model$compile("adam", "sparse_categorical_crossentropy", metrics = list("accuracy", mean_error))
    model
  }
  fit <- function(workers) {
    distributed_fit(
      model, digits$x, digits$y,
      validation_data = unname(digits), cluster = local_cluster(workers, env = no_gpus()), batch_size = 50,
      epochs = 2, seed = 1, virtual_workers = 4
    )
  }
  one <- fit(1)
  two <- fit(2)
  expect_identical(two$history, one$history)
  expect_identical(two$model$get_weights(), one$model$get_weights())
  expect_identical(two$params$virtual_workers, 4L)
})

test_that("a number of workers that may change is a part of the cluster, and needs virtual workers", {
  cluster <- local_cluster(c(2, 3), warm = FALSE)
  expect_identical(cluster$workers, 3L)
  expect_identical(cluster$fewest, 2L)
  expect_output(print(cluster), "2 to 3 workers on this machine")
})
