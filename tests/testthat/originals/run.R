# Runs a script of a user in its folder, and writes what it has trained.
#
#   Rscript run.R RESULTS SCRIPT
#
# RESULTS gets the weights and the history. It computes in float64: a rounding of float32 may switch a unit of
# relu, which shows in weights.
given <- commandArgs(TRUE)
Sys.setenv(KERAS_HOME = withr::local_tempdir())
settings <- file.path(Sys.getenv("KERAS_HOME"), "keras.json")
writeLines('{"floatx": "float64", "backend": "tensorflow"}', settings)
# Small images in place of MNIST, with the form of keras3's dataset_mnist(): 8 by 8 pixels from 0 to 255.
load_data <- function() {
  lapply(c(train = "train", test = "test"), function(split) {
    arrays <- tfdistr::load_dataset("digits", split)$arrays()
    list(x = floor(arrays[[1L]][, , , 1L] * 15.9375), y = as.integer(arrays[[2L]]))
  })
}
setwd(dirname(given[[2L]]))
source(given[[2L]], local = FALSE)
saveRDS(
  list(
    weights = lapply(model$get_weights(), as.numeric), history = history$metrics, evaluated = evaluated
  ),
  given[[1L]]
)
