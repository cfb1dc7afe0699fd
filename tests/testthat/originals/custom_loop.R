# nolint start: object_name_linter, object_usage_linter. As users write it; keras3 is not here.
# A lesson: a custom training loop under MirroredStrategy.
library(tensorflow)
library(keras3)
library(tfdatasets)

strategy <- tf$distribute$MirroredStrategy()
set_random_seed(1L)

BATCH_SIZE_PER_REPLICA <- 64L
GLOBAL_BATCH_SIZE <- BATCH_SIZE_PER_REPLICA * strategy$num_replicas_in_sync
EPOCHS <- 2L

mnist <- load_data()
train_dataset <- tensor_slices_dataset(list(mnist$train$x / 255, mnist$train$y)) |>
  dataset_shuffle(2000L, seed = 1L) |>
  dataset_batch(GLOBAL_BATCH_SIZE)
train_dist_dataset <- strategy$experimental_distribute_dataset(train_dataset)

with(strategy$scope(), {
  loss_object <- loss_sparse_categorical_crossentropy(from_logits = TRUE, reduction = "none")
  compute_loss <- function(labels, predictions) {
    tf$nn$compute_average_loss(loss_object(labels, predictions), global_batch_size = GLOBAL_BATCH_SIZE)
  }
  train_accuracy <- metric_sparse_categorical_accuracy(name = "train_accuracy")
  model <- keras_model_sequential(input_shape = c(8L, 8L)) |>
    layer_reshape(c(8L, 8L, 1L)) |>
    layer_conv_2d(32L, 3L, activation = "relu") |>
    layer_flatten() |>
    layer_dense(10L)
  optimizer <- optimizer_adam(learning_rate = 0.001)
  optimizer$build(model$trainable_variables)
})

train_step <- function(inputs) {
  images <- inputs[[1L]]
  labels <- inputs[[2L]]
  with(tf$GradientTape() %as% tape, {
    predictions <- model(images, training = TRUE)
    loss <- compute_loss(labels, predictions)
  })
  gradients <- tape$gradient(loss, model$trainable_variables)
  optimizer$apply(gradients, model$trainable_variables)
  train_accuracy$update_state(labels, predictions)
  loss
}

distributed_train_step <- tf_function(function(dataset_inputs) {
  per_replica_losses <- strategy$run(train_step, args = list(dataset_inputs))
  strategy$reduce(tf$distribute$ReduceOp$SUM, per_replica_losses, axis = NULL)
})

log <- list(loss = numeric(), accuracy = numeric())
for (epoch in seq_len(EPOCHS)) {
  total_loss <- 0
  num_batches <- 0
  iterator <- as_iterator(train_dist_dataset)
  while (!is.null(batch <- iter_next(iterator))) {
    total_loss <- total_loss + as.numeric(distributed_train_step(batch))
    num_batches <- num_batches + 1
  }
  log$loss[[epoch]] <- total_loss / num_batches
  log$accuracy[[epoch]] <- as.numeric(train_accuracy$result())
  train_accuracy$reset_state()
}
# nolint end
