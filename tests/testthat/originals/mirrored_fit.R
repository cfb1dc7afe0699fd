# nolint start: object_name_linter, object_usage_linter. As users write it; keras3 is not here.
# A lesson: fit() under MirroredStrategy, with callbacks, one of them of R.
library(tensorflow)
library(keras3)
library(tfdatasets)

strategy <- tf$distribute$MirroredStrategy()
set_random_seed(1L)

BATCH_SIZE_PER_REPLICA <- 64L
BATCH_SIZE <- BATCH_SIZE_PER_REPLICA * strategy$num_replicas_in_sync

mnist <- load_data()
train_dataset <- tensor_slices_dataset(list(mnist$train$x / 255, mnist$train$y)) |>
  dataset_cache() |>
  dataset_shuffle(10000L, seed = 1L) |>
  dataset_batch(BATCH_SIZE)
eval_dataset <- tensor_slices_dataset(list(mnist$test$x / 255, mnist$test$y)) |> dataset_batch(BATCH_SIZE)

with(strategy$scope(), {
  model <- keras_model_sequential(input_shape = c(8L, 8L)) |>
    layer_reshape(c(8L, 8L, 1L)) |>
    layer_conv_2d(32L, 3L, activation = "relu") |>
    layer_max_pooling_2d() |>
    layer_flatten() |>
    layer_dense(64L, activation = "relu") |>
    layer_dense(10L)
  model |> compile(
    loss = loss_sparse_categorical_crossentropy(from_logits = TRUE),
    optimizer = optimizer_adam(),
    metrics = "accuracy"
  )
})

decay <- function(epoch, lr) {
  if (epoch < 1L) 1e-3 else if (epoch < 2L) 1e-4 else 1e-5
}

PrintLR <- Callback(
  "PrintLR",
  on_epoch_end = function(epoch, logs = NULL) {
    rate <- as.numeric(self$model$optimizer$learning_rate)
    cat(sprintf("\nLearning rate for epoch %d is %g\n", epoch, rate))
  }
)

callbacks <- list(
  callback_tensorboard(log_dir = "./logs"),
  callback_model_checkpoint("./training_checkpoints/ckpt_{epoch}.weights.h5", save_weights_only = TRUE),
  callback_learning_rate_scheduler(decay),
  PrintLR()
)
history <- model |> fit(train_dataset, epochs = 3L, callbacks = callbacks, verbose = 0)

load_model_weights(model, "./training_checkpoints/ckpt_3.weights.h5")
evaluated <- model |> evaluate(eval_dataset, verbose = 0)
# nolint end
