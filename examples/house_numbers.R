# Train a network on images of house numbers in a custom training loop, on one worker or on several.
#
#   Rscript examples/house_numbers.R WEIGHTS_FILE
#   tfdistr run -n 2 examples/house_numbers.R WEIGHTS_FILE
#
# The script draws the images: 32x32 pixels in color, a digit on a wall. WEIGHTS_FILE, such as
# house.weights.h5, gets the weights of the best epoch, from the chief alone. Both ways, the chief prints
# these lines. `tfdistr run` puts "[worker 0]" before each:
#
#   epoch 1: loss 2.2189, accuracy 0.1810, test loss 1.9820, test accuracy 0.2467
#   epoch 2: loss 1.2930, accuracy 0.5850, test loss 0.6643, test accuracy 0.7733
#   epoch 3: loss 0.3740, accuracy 0.9080, test loss 0.2151, test accuracy 0.9567
#   epoch 4: loss 0.1251, accuracy 0.9730, test loss 0.0803, test accuracy 0.9800
#   epoch 5: loss 0.0563, accuracy 0.9900, test loss 0.0674, test accuracy 0.9833
library(keras3)
library(reticulate)
library(tensorflow)
library(tfdistr)
strategy <- make_strategy() # before anything else uses TensorFlow
keras3::set_random_seed(1) # the same initial weights on every worker; that of tensorflow hides the GPUs

batch <- 64L # the global batch
epochs <- 5L
digits <- strsplit(c(
  "### .#. ### ### #.# ### ### ### ### ###",
  "#.# ##. ..# ..# #.# #.. #.. ..# #.# #.#",
  "#.# .#. ### ### ### ### ### ..# ### ###",
  "#.# .#. #.. ..# ..# ..# #.# ..# #.# ..#",
  "### ### ### ### ..# ### ### ..# ### ###"
), " ")

# Batches of images, and the digit in each. Colors, places and noise differ.
house_numbers <- function(count, seed) {
  shapes <- lapply(1:10, function(digit) {
    pixels <- do.call(rbind, strsplit(vapply(digits, `[[`, "", digit), "")) == "#"
    pixels %x% matrix(1, 4, 4) # 20x12 pixels
  })
  set.seed(seed)
  labels <- sample(0:9, count, replace = TRUE)
  images <- array(rnorm(count * 32 * 32 * 3, sd = 0.1), c(count, 32, 32, 3))
  for (i in seq_len(count)) {
    image <- images[i, , , ] + rep(runif(3, 0, 0.5), each = 32 * 32)
    rows <- sample(4:8, 1) + 1:20
    columns <- sample(8:12, 1) + 1:12
    image[rows, columns, ] <- image[rows, columns, ] + shapes[[labels[[i]] + 1]] %o% runif(3, 0.2, 0.5)
    images[i, , , ] <- image
  }
  arrays <- tuple(np_array(images, "float32"), np_array(labels, "int64"))
  distribute(tf$data$Dataset$from_tensor_slices(arrays)$batch(batch), strategy)
}

train <- house_numbers(1000, seed = 1)
test <- house_numbers(300, seed = 2)

with(strategy$scope(), {
  # With relu or max pooling, numbers rounded differently may take the other branch, and the lines differ.
  model <- keras_model_sequential(c(32, 32, 3)) |>
    layer_conv_2d(16, 3, strides = 2, activation = "silu") |>
    layer_average_pooling_2d(2) |>
    layer_conv_2d(32, 3, activation = "silu") |>
    layer_flatten() |>
    layer_dense(10)
  optimizer <- optimizer_adam(0.005)
  optimizer$build(model$trainable_variables)
  metrics <- list(
    loss = metric_mean(), accuracy = metric_sparse_categorical_accuracy(),
    "test loss" = metric_mean(), "test accuracy" = metric_sparse_categorical_accuracy()
  )
})
per_example <- loss_sparse_categorical_crossentropy(from_logits = TRUE, reduction = "none")

train_step <- function(images, labels) {
  with(tf$GradientTape() %as% tape, {
    logits <- model(images, training = TRUE)
    losses <- per_example(labels, logits)
    loss <- average_loss(losses) # over the global batch
  })
  optimizer$apply(tape$gradient(loss, model$trainable_variables), model$trainable_variables)
  metrics$loss$update_state(losses)
  metrics$accuracy$update_state(labels, logits)
  NULL
}

test_step <- function(images, labels) {
  logits <- model(images, training = FALSE)
  metrics[["test loss"]]$update_state(per_example(labels, logits))
  metrics[["test accuracy"]]$update_state(labels, logits)
  NULL
}

# A step, compiled: the strategy runs it on the replica of this worker.
runner <- function(step) {
  tf_function(function(images, labels) strategy$run(step, args = tuple(images, labels)))
}
train_batch <- runner(train_step)
test_batch <- runner(test_step)

best <- 0
for (epoch in seq_len(epochs)) {
  iterate(train, function(pair) train_batch(pair[[1]], pair[[2]]))
  iterate(test, function(pair) test_batch(pair[[1]], pair[[2]]))
  results <- vapply(metrics, function(metric) as.numeric(metric$result()$numpy()), 1) # of all workers
  for (metric in metrics) metric$reset_state()
  if (!is_chief()) next
  cat(sprintf("epoch %d: %s\n", epoch, toString(sprintf("%s %.4f", names(results), results))))
  if (results[["test accuracy"]] > best) {
    best <- results[["test accuracy"]]
    save_model_weights(model, commandArgs(trailingOnly = TRUE)[[1]], overwrite = TRUE)
  }
}
