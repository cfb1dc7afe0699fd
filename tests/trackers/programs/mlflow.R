# A job on two workers that logs to a run of MLflow. Arguments: the file for the history, the id of the run.
library(tfdistr)

arguments <- commandArgs(trailingOnly = TRUE)
run_id <- arguments[[2]]

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
  mlflow <- reticulate::import("mlflow")
  mlflow$start_run(run_id = run_id)
  list(mlflow$keras$MlflowCallback())
}

digits <- load_dataset("digits", "test")
fit <- distributed_fit(
  model, digits,
  validation_data = digits, cluster = local_cluster(workers = 2), epochs = 4, seed = 1,
  callbacks = callbacks, verbose = 0
)
jsonlite::write_json(fit$history, arguments[[1]], digits = NA)
