# From data to a trained model as on a cluster of GPUs: what communicates, and what grows with the workers.
#
#   Rscript examples/end_to_end.R OUT_DIR [WORKERS [COMMUNICATION]]
#
# The arguments, the numbers and the warning are those of end_to_end.py.
library(reticulate)
library(tfdistr)

given <- commandArgs(trailingOnly = TRUE)
out_dir <- given[[1]]
workers <- if (length(given) > 1) as.integer(given[[2]]) else 2L
communication <- if (length(given) > 2) given[[3]] else "auto"

per_worker_batch <- 32 # what fits a device: the global batch grows with the number of workers
number_of_images <- 1437L
dir.create(out_dir, showWarnings = FALSE, recursive = TRUE)
out_dir <- normalizePath(out_dir)

scaled <- function(image, label) {
  tf <- import("tensorflow")
  tuple(tf$cast(image, tf$float32) / 16, label)
}

# The images over and over, in an order of their own: steps_per_epoch says where an epoch ends.
images <- function() {
  load_dataset("digits")$dataset()$map(scaled)$shuffle(number_of_images, seed = 1L)$`repeat`()
}

test_images <- function() load_dataset("digits", "test")$dataset()$map(scaled)

model <- function() {
  keras <- import("keras")
  layers <- keras$layers
  model <- keras$Sequential(list(
    layers$Conv2D(16L, 3L, activation = "relu"), layers$Flatten(), layers$Dense(10L)
  ))
  loss <- keras$losses$SparseCategoricalCrossentropy(from_logits = TRUE)
  one_workers_rate <- 0.05
  model$compile(keras$optimizers$SGD(one_workers_rate), loss, metrics = list("accuracy"))
  model
}

# Both write, so both run on the chief alone; a ModelCheckpoint does so without being told.
callbacks <- function() {
  keras <- import("keras")
  note <- function(epoch, logs) {
    rate <- keras$ops$convert_to_numpy(rates$model$optimizer$learning_rate)
    line <- sprintf("epoch %d ended with the learning rate %.4f\n", epoch + 1L, rate)
    cat(line, file = file.path(out_dir, "learning_rates.txt"), append = epoch > 0)
  }
  rates <- keras$callbacks$LambdaCallback(on_epoch_end = note)
  best <- keras$callbacks$ModelCheckpoint(file.path(out_dir, "best.keras"), "val_loss", save_best_only = TRUE)
  list(best, chief_only(rates))
}

joined <- cluster_from_env()
num_workers <- if (is.null(joined)) workers else joined$num_workers
fit <- distributed_fit(
  model,
  images,
  validation_data = test_images,
  cluster = if (is.null(joined)) local_cluster(num_workers),
  communication = communication,
  per_worker_batch_size = per_worker_batch,
  steps_per_epoch = steps_per_epoch(number_of_images, per_worker_batch * num_workers),
  epochs = 4,
  shuffle = FALSE, # they are shuffled already
  scale_learning_rate = "linear", # with the global batch
  warmup_epochs = 2,
  callbacks = callbacks,
  seed = 1,
  verbose = 2
)
print(fit)
if (fit$workers$index[[1]] == 0) writeLines(readLines(file.path(out_dir, "learning_rates.txt")))
