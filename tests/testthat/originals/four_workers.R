# nolint start: object_name_linter, object_usage_linter. As users write it; keras3 is not here.
# A convolutional network on four workers; TF_CONFIG of each has the addresses of all.
library(tensorflow)
library(keras3)
library(tfdatasets)

strategy <- tf$distribute$MultiWorkerMirroredStrategy()
set_random_seed(1L)

per_worker_batch_size <- 64L
tf_config <- jsonlite::fromJSON(Sys.getenv("TF_CONFIG"))
num_workers <- length(tf_config$cluster$worker)
batch_size <- per_worker_batch_size * num_workers

mnist <- load_data()
train_dataset <- tensor_slices_dataset(list(mnist$train$x, mnist$train$y)) |>
  dataset_map(function(image, label) list(tf$cast(image, tf$float32) / 255, label)) |>
  dataset_shuffle(5000L) |>
  dataset_repeat() |>
  dataset_batch(batch_size)

with(strategy$scope(), {
  model <- keras_model_sequential(input_shape = c(8L, 8L)) |>
    layer_reshape(c(8L, 8L, 1L)) |>
    layer_conv_2d(filters = 32L, kernel_size = 3L, activation = "relu") |>
    layer_max_pooling_2d() |>
    layer_flatten() |>
    layer_dense(64L, activation = "relu") |>
    layer_dense(10L)
  model |> compile(
    loss = loss_sparse_categorical_crossentropy(from_logits = TRUE),
    optimizer = optimizer_sgd(learning_rate = 0.05),
    metrics = "accuracy"
  )
})

history <- model |> fit(train_dataset, epochs = 3L, steps_per_epoch = 10L, verbose = 0)
# nolint end
