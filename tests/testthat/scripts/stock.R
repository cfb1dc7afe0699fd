# One of the workers that TF_CONFIG describes, which calls Keras's own fit() under the strategy.
output <- commandArgs(TRUE)[[1L]]
library(tfdistr)
source("helper-jobs.R")
hooked <- make_tensor_with_keras()

strategy <- multi_worker_mirrored_strategy(start_timeout = 60)
digits <- some_digits()
keras <- reticulate::import("keras")
tf <- reticulate::import("tensorflow")
keras$utils$set_random_seed(7L)
seen <- new.env()
with(strategy$scope(), {
  model <- small_model()
  squared <- function(truth, prediction) {
    one_hot <- tf$one_hot(tf$cast(tf$reshape(truth, list(-1L)), "int32"), 10L)
    tf$reduce_mean((one_hot - prediction)^2, axis = -1L)
  }
  model$compile("adam", squared, metrics = list("accuracy"))
})
dataset <- tf$data$Dataset$from_tensor_slices(reticulate::tuple(digits$x, digits$y))$shuffle(120L)
dataset <- dataset$map(function(x, y) reticulate::tuple(x * 2, y))$batch(50L)
dataset <- auto_shard(dataset, strategy$num_workers)
history <- model$fit(
  dataset,
  epochs = 2L, verbose = 0L,
  callbacks = list(keras$callbacks$LambdaCallback(on_epoch_end = function(epoch, logs) {
    seen$epochs <- c(seen$epochs, epoch)
  }))
)
saveRDS(list(
  history = history$history, weights = model$get_weights(), epochs = seen$epochs,
  index = strategy$worker_index, workers = strategy$num_workers, chief = strategy$is_chief,
  hooked = hooked$tensor
), output)
# Workers end at different moments.
Sys.sleep(2 * strategy$worker_index)
