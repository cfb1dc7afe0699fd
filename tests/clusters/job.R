# The job of job.py, in R: Rscript job.R CLUSTER train|error FOLDER
library(tfdistr)

words <- commandArgs(trailingOnly = TRUE)
cluster <- eval(parse(text = words[[1]]))
what <- words[[2]]
folder <- normalizePath(words[[3]])

model <- function() {
  keras <- reticulate::import("keras")
  cat("the model of worker", worker_index(), "\n")
  if (what == "error") stop("this model has no layers")
  made <- keras$Sequential(list(keras$layers$Flatten(), keras$layers$Dense(10L, "softmax")))
  made$compile(keras$optimizers$SGD(0.001, momentum = 0.9), "sparse_categorical_crossentropy")
  made
}

callbacks <- function() {
  begin <- function(epoch, logs) {
    writeLines(as.character(Sys.getpid()), file.path(folder, paste0("began-", worker_index())))
  }
  list(reticulate::import("keras")$callbacks$LambdaCallback(on_epoch_begin = begin))
}

arguments <- list(model, load_dataset("digits", "test"),
  batch_size = 72, seed = 1, verbose = 0, callbacks = callbacks, epochs = 4,
  strategy = multi_worker_mirrored(communication = Sys.getenv("COMMUNICATION", "auto"))
)
if (!is.null(cluster)) arguments <- c(arguments, list(cluster = cluster, run_dir = file.path(folder, "run")))
fit <- do.call(distributed_fit, arguments)
if (is_chief()) {
  # Not `fit$model`: the caller would import TensorFlow for it.
  weights <- lapply(
    attr(fit, "session")$result$`_trained`$state()$weights,
    function(weight) as.vector(aperm(as.array(weight)))
  )
  found <- list(
    weights = weights, history = lapply(fit$history, as.list),
    workers = fit$params$workers, hosts = as.list(fit$workers$host)
  )
  jsonlite::write_json(found, file.path(folder, "result.json"), digits = NA, auto_unbox = TRUE)
}
