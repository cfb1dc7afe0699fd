# Scripts for TensorFlow's strategies train on many workers, though only the strategy's name is changed. The
# scripts in originals/ are for tf$distribute. The changed scripts must give what they give with the default
# strategy of TensorFlow, which distributes nothing, in one process whose batch is that of all replicas.

# nolint start: object_usage_linter. The functions of testthat and of helper-jobs.R.
# What a script has for each replica.
per_replica <- list(
  hpc.R = c(batch_size_per_worker = "32L", learning_rate_per_worker = "0.02")
)

# Replaces one place in a text.
replace_once <- function(text, old, new) {
  expect_length(gregexpr(old, text, fixed = TRUE)[[1L]], 1L)
  expect_true(grepl(old, text, fixed = TRUE))
  sub(old, new, text, fixed = TRUE)
}

original <- function(script) {
  paste0(c(readLines(test_path("originals", script)), ""), collapse = "\n")
}

# The text of a script with another strategy, and its package: nothing else changes.
changed <- function(script) {
  text <- replace_once(
    original(script), "tf$distribute$MultiWorkerMirroredStrategy(", "multi_worker_mirrored_strategy("
  )
  replace_once(text, "library(keras3)\n", "library(keras3)\nlibrary(tfdistr)\n")
}

# The text of a script whose strategy distributes nothing, with the numbers of several replicas.
undistributed <- function(script, replicas) {
  text <- original(script)
  for (name in names(per_replica[[script]])) {
    value <- per_replica[[script]][[name]]
    text <- replace_once(
      text, sprintf("\n%s <- %s\n", name, value), sprintf("\n%s <- %dL * %s\n", name, replicas, value)
    )
  }
  strategy <- "strategy <- tf\\$distribute\\$\\w+(\\((?:[^()]++|(?1))*\\))" # parentheses may be in others
  without <- sub(strategy, "strategy <- tf$distribute$get_strategy()", text, perl = TRUE)
  expect_false(identical(without, text))
  without
}

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

alone <- list(c(TF_CONFIG = "{}"))

workers <- function(count) {
  cluster_env(tf_config(paste0("127.0.0.1:", module_of_core("network.ports")$free_ports(as.integer(count)))))
}

expect_as_one <- function(run, text) {
  one <- run_original(text, alone)$results[[1L]]
  expect_lt(tail(one$history$loss, 1L), one$history$loss[[1L]])
  for (result in run$results) expect_equal(result, one, tolerance = 1e-6)
}

# nolint end

test_that("a script with the options of TensorFlow trains on two workers", {
  run <- run_original(changed("hpc.R"), workers(2L))
  expect_as_one(run, undistributed("hpc.R", 2L))
  expect_setequal(list.files(file.path(run$folder, "out")), c("1.keras", "2.keras", "3.keras", "log.csv"))
})

test_that("options that are created before the call are an error that names the way", {
  skip_slow("the same job in more processes")
  options <- "communication_options = tf$distribute$experimental$CommunicationOptions(
    implementation = tf$distribute$experimental$CommunicationImplementation$NCCL
  )"
  text <- replace_once(changed("hpc.R"), options, "communication_options = options")
  before <- paste0(sub("communication_options =", "options <-", options, fixed = TRUE), "\n")
  text <- replace_once(text, "strategy <-", paste0(before, "strategy <-"))
  script <- withr::local_tempfile(lines = text, fileext = ".R")
  env <- c(R_LIBS = libraries(), no_gpus(), workers(2L)[[1L]])
  started <- start_script("originals/run.R", c(withr::local_tempfile(), script), env)
  started$process$wait(100000)
  expect_identical(started$process$get_exit_status(), 1L)
  said <- gsub("\\s+", " ", started$output())
  expect_match(said, "Create its TensorFlow arguments in the call itself, not before.")
})
