# A job of R whose workers print much at once. In Python: talks.py, which says what.
library(tfdistr)
arguments <- commandArgs(TRUE)

# Every other line that is counted is printed by Python, in the same process.
talk <- function(worker) {
  talks <- reticulate::import("talks")
  said <- unlist(talks$lines(worker))
  counted <- seq_len(talks$COUNT)
  for (number in counted) {
    line <- said[[number]]
    if (number %% 4 == 1) message(line)
    if (number %% 4 == 2) cat(line, "\n", sep = "")
    if (number %% 4 == 3) reticulate::py_run_string(sprintf("import sys; print('%s', file=sys.stderr)", line))
    if (number %% 4 == 0) reticulate::py_run_string(sprintf("print('%s')", line))
  }
  rest <- said[-counted]
  cat(substr(rest[[1]], 1, 5))
  cat(substr(rest[[1]], 6, 10))
  cat(substring(rest[[1]], 11), "\n", sep = "")
  writeLines(rest[2:5])
  cat(rest[[6]], file = stderr())
}

callbacks <- function() {
  index <- worker_index()
  list(reticulate::import("keras")$callbacks$LambdaCallback(on_train_end = function(logs) talk(index)))
}

model <- function() {
  keras <- reticulate::import("keras")
  made <- keras$Sequential(list(keras$layers$Dense(1L)))
  made$compile("sgd", "mse")
  made
}

fit <- distributed_fit(
  model, matrix(1, 8, 2), rep(1, 8),
  callbacks = callbacks, run_dir = arguments[[1]],
  cluster = local_cluster(2, follow = TRUE, warm = arguments[[2]] == "warm"), verbose = 0
)
