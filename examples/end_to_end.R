# From data to a trained model as on a cluster of GPUs: what communicates, and what grows with the workers.
#
#   Rscript examples/end_to_end.R OUT_DIR [WORKERS [COMMUNICATION]]
#
# The arguments, the numbers and the warning are those of end_to_end.py.
library(keras3)
library(tfdistr)

given <- commandArgs(trailingOnly = TRUE)
out_dir <- given[[1]]
workers <- if (length(given) > 1) as.integer(given[[2]]) else 2L
communication <- if (length(given) > 2) given[[3]] else "auto"

per_worker_batch <- 32 # what fits a device: the global batch grows with the number of workers
number_of_images <- 1437L
dir.create(out_dir, showWarnings = FALSE, recursive = TRUE)
out_dir <- normalizePath(out_dir)

scaled <- function(image, label) reticulate::tuple(op_cast(image, "float32") / 16, label)

# The images over and over, in an order of their own: steps_per_epoch says where an epoch ends.
images <- function() {
  load_dataset("digits")$dataset()$map(scaled)$shuffle(number_of_images, seed = 1L)$`repeat`()
}

test_images <- function() load_dataset("digits", "test")$dataset()$map(scaled)

model <- function() {
  one_workers_rate <- 0.05
  keras_model_sequential() |>
    layer_conv_2d(16, 3, activation = "relu") |>
    layer_flatten() |>
    layer_dense(10) |>
    compile(
      optimizer_sgd(one_workers_rate), loss_sparse_categorical_crossentropy(from_logits = TRUE),
      metrics = "accuracy"
    )
}

# Both write, so both run on the chief alone; a ModelCheckpoint does so without being told.
callbacks <- function() {
  note <- function(epoch, logs) {
    rate <- as.array(rates$model$optimizer$learning_rate)
    line <- sprintf("epoch %d ended with the learning rate %.4f\n", epoch, rate)
    cat(line, file = file.path(out_dir, "learning_rates.txt"), append = epoch > 1)
  }
  rates <- callback_lambda(on_epoch_end = note)
  best <- callback_model_checkpoint(file.path(out_dir, "best.keras"), "val_loss", save_best_only = TRUE)
  list(best, chief_only(rates))
}

joined <- cluster_from_env()
num_workers <- if (is.null(joined)) workers else joined$num_workers
fit <- distributed_fit(
  model,
  images,
  validation_data = test_images,
  cluster = if (is.null(joined)) local_cluster(num_workers),
  strategy = multi_worker_mirrored(communication = communication),
  batch_size = per_worker(per_worker_batch, scale_learning_rate = "linear", warmup_epochs = 2),
  steps_per_epoch = steps_per_epoch(number_of_images, per_worker_batch * num_workers),
  epochs = 4,
  shuffle = FALSE, # they are shuffled already
  callbacks = callbacks,
  seed = 1,
  verbose = 2
)
print(fit)
if (fit$workers$index[[1]] == 0) writeLines(readLines(file.path(out_dir, "learning_rates.txt")))
