# A script for a strategy of TensorFlow trains on many workers, though only the strategy's name is changed. It
# is originals/hpc.R. The changed script must give what it gives with the default strategy of TensorFlow,
# which distributes nothing, in one process whose batch is that of all replicas.

# nolint start: object_usage_linter. The functions of testthat and of helper-jobs.R.
# The script with places in its text replaced, each of which it has once.
script_with <- function(...) {
  text <- paste0(c(readLines(test_path("originals", "hpc.R")), ""), collapse = "\n")
  for (change in list(...)) {
    expect_length(gregexpr(change[[1L]], text, fixed = TRUE)[[1L]], 1L)
    expect_true(grepl(change[[1L]], text, fixed = TRUE))
    text <- sub(change[[1L]], change[[2L]], text, fixed = TRUE)
  }
  text
}

# Another strategy, and its package: nothing else changes.
changed <- list(
  c("tf$distribute$MultiWorkerMirroredStrategy(", "multi_worker_mirrored_strategy("),
  c("library(keras3)\n", "library(keras3)\nlibrary(tfdistr)\n")
)
options <- "communication_options = tf$distribute$experimental$CommunicationOptions(
    implementation = tf$distribute$experimental$CommunicationImplementation$NCCL
  )"

# What each process that runs the script has trained; they share a folder.
run_original <- function(text, configs, frame = parent.frame()) {
  folder <- withr::local_tempdir(.local_envir = frame)
  script <- file.path(folder, "script.R")
  writeLines(text, script)
  env <- c(R_LIBS = libraries(), no_gpus())
  results <- file.path(folder, sprintf("results-%d.rds", seq_along(configs)))
  here <- environment()
  started <- Map(function(result, config) {
    start_script("originals/run.R", c(result, script), c(env, config), here)
  }, results, configs)
  for (one in started) {
    one$process$wait(200000)
    expect_identical(one$process$get_exit_status(), 0L, info = one$output())
  }
  list(folder = folder, results = lapply(results, readRDS))
}
# nolint end

test_that("a script with the options of TensorFlow trains on two workers", {
  run <- run_original(do.call(script_with, changed), cluster_env(tf_config(free_addresses())))
  undistributed <- script_with(
    c(paste0("MultiWorkerMirroredStrategy(\n  ", options, "\n)"), "get_strategy()"),
    c("batch_size_per_worker <- 32L", "batch_size_per_worker <- 2L * 32L"),
    c("learning_rate_per_worker <- 0.02", "learning_rate_per_worker <- 2 * 0.02")
  )
  one <- run_original(undistributed, list(c(TF_CONFIG = "{}")))$results[[1L]]
  expect_lt(tail(one$history$loss, 1L), one$history$loss[[1L]])
  for (result in run$results) expect_equal(result, one, tolerance = 1e-6)
  expect_setequal(list.files(file.path(run$folder, "out")), c("1.keras", "2.keras", "3.keras", "log.csv"))
})

test_that("options that are created before the call are an error that names the way", {
  skip_slow("the same job in more processes")
  before <- paste0(sub("communication_options =", "options <-", options, fixed = TRUE), "\n")
  text <- script_with(
    changed[[1L]], changed[[2L]], c(options, "communication_options = options"),
    c("strategy <-", paste0(before, "strategy <-"))
  )
  script <- withr::local_tempfile(lines = text, fileext = ".R")
  env <- c(R_LIBS = libraries(), no_gpus(), cluster_env(tf_config(free_addresses()))[[1L]])
  started <- start_script("originals/run.R", c(withr::local_tempfile(), script), env)
  started$process$wait(100000)
  expect_identical(started$process$get_exit_status(), 1L)
  said <- gsub("\\s+", " ", started$output())
  expect_match(said, "Create its TensorFlow arguments in the call itself, not before.")
})
