# One of the workers that TF_CONFIG describes, started by hand: joins it, trains, and writes what came out.
output <- commandArgs(TRUE)[[1L]]
library(tfdistr)
source("helper-jobs.R")
hooked <- make_tensor_with_keras()

digits <- some_digits()
build <- small_model
place <- function() list(worker_index(), num_workers(), is_chief())
before <- place()
seen <- new.env()
model <- function() {
  seen$place <- place()
  seen$drawn <- runif(1)
  build()
}
# Without a seed: all have the chief's.
fit <- distributed_fit(model, digits$x, digits$y, batch_size = 64, epochs = 2)
saveRDS(list(
  seed = fit$params$seed, drawn = seen$drawn, history = fit$history, weights = fit$model$get_weights(),
  workers = fit$workers, communication = fit$params$communication, place = list(before, seen$place),
  hooked = hooked$tensor
), output)
