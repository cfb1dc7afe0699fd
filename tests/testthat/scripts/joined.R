# One of the workers that TF_CONFIG describes, started by hand: joins it, trains, and writes what came out.
output <- commandArgs(TRUE)[[1L]]
library(tfdistr)
source("helper-jobs.R")

digits <- some_digits()
fit <- distributed_fit(small_model, digits$x, digits$y, batch_size = 50, epochs = 2, seed = 7)
saveRDS(list(history = fit$history, weights = fit$model$get_weights(), workers = fit$workers), output)
