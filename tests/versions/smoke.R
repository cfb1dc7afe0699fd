# An R function as the loss of a model that two workers train, with the result of one.
library(tfdistr)

model <- function() {
  keras <- reticulate::import("keras")
  squared_error <- function(y_true, y_pred) keras$ops$mean((y_true - y_pred)^2, axis = -1L)
  model <- keras$Sequential(list(keras$layers$Dense(4L, activation = "relu"), keras$layers$Dense(1L)))
  model$compile("sgd", squared_error)
  model
}

x <- matrix(sin(1:240), 60)
y <- rowSums(x)
weights <- lapply(1:2, function(workers) {
  fit <- distributed_fit(
    model, x, y, cluster = local_cluster(workers = workers), epochs = 2, seed = 1, verbose = 0
  )
  lapply(fit$model$get_weights(), as.array)
})
stopifnot(isTRUE(all.equal(weights[[1]], weights[[2]], tolerance = 1e-6)))
stop_warm_workers()
cat("the result of one worker\n")
