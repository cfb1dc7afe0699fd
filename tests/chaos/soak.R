# The job of soak.py from R: Rscript soak.R FOLDER STEPS EPOCHS EVERY HEARTBEAT
library(tfdistr)

words <- commandArgs(trailingOnly = TRUE)
folder <- normalizePath(words[[1]])
numbers <- as.numeric(words[-1])
script <- sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE))

model <- function() {
  keras <- reticulate::import("keras")
  layers <- keras$layers
  made <- keras$Sequential(list(
    layers$Dense(64L, "relu"), layers$BatchNormalization(), layers$Dropout(0.3), layers$Dense(2L, "softmax")
  ))
  made$compile("adam", "sparse_categorical_crossentropy", metrics = list("accuracy"))
  made
}

set.seed(1)
x <- matrix(rnorm(16 * numbers[[1]] * 6), ncol = 6)
y <- as.integer(x[, 1] * x[, 2] > 0)
fit <- distributed_fit(
  model, x, y,
  cluster = local_cluster(2, heartbeat_timeout = numbers[[4]]), batch_size = 16, epochs = numbers[[2]],
  seed = 1, verbose = 0, run_dir = file.path(folder, "run"), checkpoint_every = numbers[[3]],
  failures = on_failure(max_restarts = 2), resume = TRUE
)
soak <- reticulate::import_from_path("soak", path = dirname(normalizePath(script)))
soak$write_result(attr(fit, "session")$result, file.path(folder, "result.json"))
