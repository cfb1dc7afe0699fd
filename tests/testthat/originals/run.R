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
source("originals/images.R")
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
