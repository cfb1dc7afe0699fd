# A job of two workers that continues until it is interrupted; the worker functions say that they train.
run_dir <- commandArgs(TRUE)[[1L]]
library(tfdistr)
source("helper-jobs.R")

digits <- some_digits()
result <- tryCatch(
  distributed_fit(
    small_model, digits$x, digits$y,
    cluster = local_cluster(workers = 2), epochs = 1e6, run_dir = run_dir
  ),
  interrupt = function(condition) class(condition)
)
cat("result:", result, "\n")
