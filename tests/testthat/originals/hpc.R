# nolint start: object_name_linter, object_usage_linter. As users write it; keras3 is not here.
# A job of a computing centre: NCCL, batch and learning rate grow with the workers, the chief writes.
library(tensorflow)
library(keras3)
library(tfdatasets)

strategy <- tf$distribute$MultiWorkerMirroredStrategy(
  communication_options = tf$distribute$experimental$CommunicationOptions(
    implementation = tf$distribute$experimental$CommunicationImplementation$NCCL
  )
)
set_random_seed(1L)

batch_size_per_worker <- 32L
batch_size <- batch_size_per_worker * strategy$num_replicas_in_sync
learning_rate_per_worker <- 0.02
learning_rate <- learning_rate_per_worker * strategy$num_replicas_in_sync

mnist <- load_data()
dataset <- tensor_slices_dataset(list(mnist$train$x / 255, mnist$train$y)) |>
  dataset_shuffle(2000L, seed = 1L) |>
  dataset_repeat() |>
  dataset_batch(batch_size) |>
  dataset_prefetch(tf$data$AUTOTUNE)
test <- tensor_slices_dataset(list(mnist$test$x / 255, mnist$test$y)) |> dataset_batch(batch_size)

with(strategy$scope(), {
  model <- keras_model_sequential(input_shape = c(8L, 8L)) |>
    layer_reshape(c(8L, 8L, 1L)) |>
    layer_conv_2d(16L, 3L, activation = "relu") |>
    layer_flatten() |>
    layer_dense(10L)
  model |> compile(
    optimizer = optimizer_sgd(learning_rate),
    loss = loss_sparse_categorical_crossentropy(from_logits = TRUE),
    metrics = "accuracy"
  )
})

cluster_resolver <- tf$distribute$cluster_resolver$TFConfigClusterResolver()
is_chief <- is.null(cluster_resolver$task_id) || cluster_resolver$task_id == 0
callbacks <- list()
if (is_chief) {
  dir.create("out", showWarnings = FALSE)
  callbacks <- list(callback_model_checkpoint("out/{epoch}.keras"), callback_csv_logger("out/log.csv"))
}
history <- model |> fit(
  dataset,
  epochs = 3L, steps_per_epoch = 1437L %/% batch_size, validation_data = test, callbacks = callbacks,
  verbose = 0
)
evaluated <- model |> evaluate(test, verbose = 0)
# nolint end
