# Runs a script of a user in its folder, and writes what it has trained.
#
#   Rscript run.R RESULTS SCRIPT [DEVICES]
#
# RESULTS gets the weights, the history and what the script has evaluated. DEVICES is how many logical CPUs
# there are. It computes in float64: a rounding of float32 may switch a unit of relu, which shows in weights.
given <- commandArgs(TRUE)
Sys.setenv(KERAS_HOME = withr::local_tempdir())
settings <- file.path(Sys.getenv("KERAS_HOME"), "keras.json")
writeLines('{"floatx": "float64", "backend": "tensorflow"}', settings)
source("originals/images.R")
if (length(given) > 2L) {
  config <- reticulate::import("tensorflow")$config
  each <- rep(list(config$LogicalDeviceConfiguration()), as.integer(given[[3L]]))
  config$set_logical_device_configuration(config$list_physical_devices("CPU")[[1L]], each)
}
setwd(dirname(given[[2L]]))
source(given[[2L]], local = FALSE)
saveRDS(
  list(
    weights = lapply(model$get_weights(), as.numeric),
    history = if (exists("history", inherits = FALSE)) history$metrics else log,
    evaluated = if (exists("evaluated", inherits = FALSE)) evaluated
  ),
  given[[1L]]
)
