# Trains with checkpoints in the folder that is named, and tells itself to end in the second epoch.
library(tfdistr)

model <- function() {
  keras <- reticulate::import("keras")
  model <- keras$Sequential(list(keras$layers$Dense(1L)))
  model$compile("sgd", "mse")
  model
}

told <- function() {
  callbacks <- reticulate::import("keras")$callbacks
  list(callbacks$LambdaCallback(on_epoch_begin = function(epoch, logs) {
    if (epoch == 1) tools::pskill(Sys.getpid(), tools::SIGTERM)
  }))
}

distributed_fit(
  model, matrix(1:100 / 100, ncol = 1), 1:100 / 50,
  epochs = 50, batch_size = 4, callbacks = told,
  run_dir = commandArgs(TRUE), checkpoint_every = "epoch", verbose = 0
)
