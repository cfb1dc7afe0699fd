# nolint start: object_name_linter, object_usage_linter. As users write it; keras3 is not here.
# A chief and a worker. The chief saves the model, and both load it.
library(tensorflow)
library(keras3)
library(tfdatasets)

strategy <- tf$distribute$MultiWorkerMirroredStrategy()
task_type <- strategy$cluster_resolver$task_type
set_random_seed(1L)

mnist <- load_data()
train <- tensor_slices_dataset(list(mnist$train$x / 255, mnist$train$y)) |> dataset_batch(64L)
test <- tensor_slices_dataset(list(mnist$test$x / 255, mnist$test$y)) |> dataset_batch(64L)

with(strategy$scope(), {
  model <- keras_model_sequential(input_shape = c(8L, 8L)) |>
    layer_reshape(c(8L, 8L, 1L)) |>
    layer_conv_2d(16L, 3L, activation = "relu") |>
    layer_flatten() |>
    layer_dense(10L)
  model |> compile(
    optimizer = optimizer_sgd(0.05),
    loss = loss_sparse_categorical_crossentropy(from_logits = TRUE),
    metrics = "accuracy"
  )
})
history <- model |> fit(train, epochs = 2L, validation_data = test, verbose = 0)

model_path <- file.path(getwd(), "digits.keras")
if (is.null(task_type) || task_type == "chief") {
  save_model(model, model_path, overwrite = TRUE)
}
invisible(strategy$reduce("SUM", tf$constant(1), axis = NULL)) # wait for the chief's file

with(strategy$scope(), loaded_model <- load_model(model_path))
evaluated <- loaded_model |> evaluate(test, verbose = 0)
# nolint end
