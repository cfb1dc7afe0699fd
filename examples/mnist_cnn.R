# The original job: a convolutional network on MNIST, 64 images a worker, 3 epochs.
#
#   Rscript examples/mnist_cnn.R DATA_DIR [WORKERS [LEARNING_RATE]]
#
# DATA_DIR holds MNIST as TensorFlow Datasets prepares it; "digits" in its place trains on the small images
# that are part of tfdistr, in a few seconds.
library(keras3)
library(tfdistr)

given <- commandArgs(trailingOnly = TRUE)
data_dir <- given[[1]]
workers <- if (length(given) > 1) as.integer(given[[2]]) else 4L
learning_rate <- if (length(given) > 2) as.numeric(given[[3]]) else 0.001

small <- data_dir == "digits"
images <- function(split) {
  if (small) load_dataset("digits", split) else load_dataset("mnist", split, data_dir = data_dir)
}
white <- if (small) 16 else 255 # the value of a white pixel

model <- function() {
  keras_model_sequential() |>
    layer_rescaling(1 / white) |>
    layer_conv_2d(32, 3, activation = "relu") |>
    layer_max_pooling_2d() |>
    layer_flatten() |>
    layer_dense(64, activation = "relu") |>
    layer_dense(10, activation = "softmax") |>
    compile(optimizer_sgd(learning_rate), "sparse_categorical_crossentropy", metrics = "accuracy")
}

fit <- distributed_fit(
  model,
  images("train"),
  validation_data = images("test"),
  cluster = local_cluster(workers),
  batch_size = per_worker(64),
  epochs = 3,
  seed = 1,
  verbose = 2
)
print(fit)
