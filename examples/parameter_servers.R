# Softmax regression on MNIST with a parameter server and workers, asynchronously or synchronously.
#
#   Rscript examples/parameter_servers.R DATA_DIR [UPDATE [WORKERS]]
#
# DATA_DIR holds MNIST as TensorFlow Datasets prepares it; "digits" in its place trains on the small images
# that are part of tfdistr, in a few seconds. UPDATE is "async" or "sync".
library(keras3)
library(tfdistr)

given <- commandArgs(trailingOnly = TRUE)
data_dir <- given[[1]]
update <- if (length(given) > 1) given[[2]] else "async"
workers <- if (length(given) > 2) as.integer(given[[3]]) else 2L

small <- data_dir == "digits"
images <- function(split) {
  if (small) load_dataset("digits", split) else load_dataset("mnist", split, data_dir = data_dir)
}
white <- if (small) 16 else 255 # the value of a white pixel

model <- function() {
  keras_model_sequential() |>
    layer_rescaling(1 / white) |>
    layer_flatten() |>
    layer_dense(10, activation = "softmax") |>
    compile(optimizer_sgd(0.5), "sparse_categorical_crossentropy", metrics = "accuracy")
}

fit <- distributed_fit(
  model,
  images("train"),
  validation_data = images("test"),
  cluster = local_cluster(workers, ps = 1),
  strategy = parameter_server(update = update),
  batch_size = 100,
  epochs = 3,
  seed = 1,
  verbose = 2
)
print(fit)
steps <- fit$workers[!is.na(fit$workers$local_steps), ]
line <- "%s: local steps %d, global step %d\n"
cat(sprintf(line, steps$task, steps$local_steps, fit$params$global_step), sep = "")
