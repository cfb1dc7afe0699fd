# A job on two workers that logs to Weights & Biases. Arguments: the file for the history, the folder of W&B.
library(tfdistr)

arguments <- commandArgs(trailingOnly = TRUE)
folder <- arguments[[2]]

model <- function() {
  keras <- reticulate::import("keras")
  layers <- keras$layers
  model <- keras$Sequential(list(layers$Rescaling(1 / 16), layers$Flatten(), layers$Dense(10L, "softmax")))
  model$compile("adam", "sparse_categorical_crossentropy", metrics = list("accuracy"))
  model
}

callbacks <- function() {
  if (!is_chief()) {
    return(list())
  }
  wandb <- reticulate::import("wandb")
  wandb$init(project = "digits", id = "first", resume = "allow", mode = "offline", dir = folder)
  list(reticulate::import("wandb.integration.keras")$WandbMetricsLogger())
}

digits <- load_dataset("digits", "test")
fit <- distributed_fit(
  model, digits,
  validation_data = digits, cluster = local_cluster(workers = 2), epochs = 4, seed = 1,
  callbacks = callbacks, verbose = 0
)
jsonlite::write_json(fit$history, arguments[[1]], digits = NA)
