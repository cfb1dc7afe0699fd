# Trains on two devices of this process, and tries it with an R function in the model. Its argument is the
# file for what was found.
output <- commandArgs(TRUE)[[1]]
library(tfdistr)
tf <- reticulate::import("tensorflow")
keras <- reticulate::import("keras")
cpu <- tf$config$list_physical_devices("CPU")[[1]]
device <- tf$config$LogicalDeviceConfiguration
tf$config$set_logical_device_configuration(cpu, list(device(), device()))

x <- matrix(sin(1:200), ncol = 4)
y <- as.integer(x[, 1] > 0)
model <- function(loss = "sparse_categorical_crossentropy", layer = NULL) {
  parts <- list(keras$layers$Dense(8L, activation = "relu"), layer)
  last <- keras$layers$Dense(2L, activation = "softmax")
  network <- keras$Sequential(c(Filter(Negate(is.null), parts), list(last)))
  network$compile("sgd", loss, metrics = list("accuracy"))
  network
}
fit <- function(model, ...) {
  distributed_fit(model, x, y, batch_size = 16, epochs = 2, seed = 1, verbose = 0, ...)
}
two <- function(model) fit(model, strategy = mirrored(devices = c("cpu:0", "cpu:1")))
refused <- function(model) tryCatch(two(model), tfdistr_error_argument = conditionMessage)

alone <- fit(model)
mirrored <- two(model)
seen <- new.env()
count <- keras$callbacks$LambdaCallback(on_epoch_end = function(epoch, logs) seen$epochs <- epoch + 1)
counted <- fit(model, strategy = one_device(device = "cpu:1"), callbacks = list(count))
own_loss <- function(y_true, y_pred) keras$ops$mean(keras$ops$square(y_pred), axis = -1L)
saveRDS(
  list(
    mirrored = max(abs(unlist(mirrored$history) - unlist(alone$history))),
    strategy = mirrored$params$strategy,
    predictions = dim(predict(mirrored, x)),
    one_device = max(abs(unlist(counted$history) - unlist(alone$history))),
    epochs = seen$epochs,
    loss = refused(function() model(own_loss)),
    layer = refused(function() model(layer = keras$layers$Lambda(function(x) x * 2)))
  ),
  output
)
