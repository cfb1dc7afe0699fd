# Trains with checkpoints in the folder that is named, and tells itself to end in the second epoch. With a
# second argument it catches the error, and continues.
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

arguments <- commandArgs(TRUE)
train <- function() {
  distributed_fit(
    model, matrix(1:100 / 100, ncol = 1), 1:100 / 50,
    epochs = 50, batch_size = 4, callbacks = told,
    run_dir = arguments[[1]], checkpoint_every = "epoch", verbose = 0
  )
}
if (length(arguments) == 1) train()
tryCatch(train(), tfdistr_error_job_stopped = function(error) {
  cat("caught: ", class(error$exception)[[1]], "\n", sep = "")
})
