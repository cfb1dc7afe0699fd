# The seconds of a batch, with and without callbacks of R; see languages.py. Arguments: BATCHES OUT.
library(tfdistr)

arguments <- commandArgs(trailingOnly = TRUE)
batches <- as.integer(arguments[[1L]])
epochs <- 4
batch <- 16
seen <- new.env()

lambda <- function(...) reticulate::import("keras")$callbacks$LambdaCallback(...)

model <- function() {
  keras <- reticulate::import("keras")
  made <- keras$Sequential(list(keras$layers$Dense(1L)))
  made$compile("sgd", "mse")
  made
}

# The median of the epochs but the first, for each batch.
seconds_of_batch <- function(make_callback) {
  seen$moments <- NULL
  callbacks <- function() {
    ends <- lambda(on_epoch_end = function(epoch, logs) {
      seen$moments <- c(seen$moments, as.numeric(Sys.time()))
    })
    c(list(ends), if (!is.null(make_callback)) list(make_callback()))
  }
  x <- matrix(0, batches * batch, 8)
  distributed_fit(
    model, x, x[, 1L, drop = FALSE],
    batch_size = batch, epochs = epochs, seed = 1, callbacks = callbacks, verbose = 0
  )
  stats::median(diff(seen$moments)) / batches
}

# A callback that reads the loss of each batch.
each_batch <- function() {
  lambda(on_train_batch_end = function(batch, logs) seen$losses <- c(seen$losses, logs$loss))
}

# A callback that reads the loss of each epoch.
each_epoch <- function() {
  lambda(on_epoch_end = function(epoch, logs) seen$losses <- c(seen$losses, logs$loss))
}

seconds <- list(
  none = seconds_of_batch(NULL), "after each epoch" = seconds_of_batch(each_epoch),
  "after each batch" = seconds_of_batch(each_batch)
)
jsonlite::write_json(seconds, arguments[[2L]], auto_unbox = TRUE, digits = NA)
