# The scripts of examples/, run as a user runs them, with keras3, on small data. They are not part of the
# package.

examples <- file.path("..", "..", "examples")

# What processes that are started together print; each is a list of a script, arguments and TF_CONFIG, if any.
outputs <- function(...) {
  testthat::skip_if_not(dir.exists("../../examples"), "examples/ of the repository")
  frame <- environment()
  keras3 <- libraries() # nolint: object_usage_linter. It is in helper-jobs.R.
  tasks <- lapply(list(...), function(task) {
    tf_config <- if (length(task) > 2L) task[[3L]] else c(TF_CONFIG = "")
    env <- c(R_LIBS = keras3, CUDA_VISIBLE_DEVICES = "", tf_config)
    start_script(task[[1L]], task[[2L]], env, frame) # nolint: object_usage_linter. It is in helper-jobs.R.
  })
  vapply(tasks, function(task) {
    task$process$wait(150000)
    testthat::expect_identical(task$process$get_exit_status(), 0L, info = task$output())
    task$output()
  }, "")
}

found <- function(pattern, text) regmatches(text, gregexpr(pattern, text, perl = TRUE))[[1L]]

# The validation loss of each epoch.
val_losses <- function(output) as.numeric(sub(".* ", "", found("Epoch .* val_loss: [0-9.]+", output)))

test_that("mnist_cnn.R trains on digits", {
  skip_slow("runs a whole example")
  output <- outputs(list(file.path(examples, "mnist_cnn.R"), c("digits", "2", "0.1")))
  expect_match(output, "Trained on 2 workers, 3 epochs, global batch 128, seed 1\n", fixed = TRUE)
  losses <- val_losses(output)
  expect_length(losses, 3L)
  expect_true(all(diff(losses) < 0))
})

# Asynchronously, as it is by default; test_examples.py runs the script in Python synchronously.
test_that("parameter_servers.R trains on digits, each step on one of the workers", {
  skip_slow("runs a whole example")
  output <- outputs(list(file.path(examples, "parameter_servers.R"), "digits"))
  steps <- found("(?m)^worker \\d: local steps \\d+, global step 45$", output)
  expect_length(steps, 2L)
  expect_identical(sum(as.numeric(sub(".* steps (\\d+),.*", "\\1", steps))), 45)
  losses <- val_losses(output)
  expect_length(losses, 3L)
  expect_true(all(diff(losses) < 0))
})

# What each task prints with its loss and accuracy, in their order.
lines_of_tasks <- function(output) {
  line <- "\\w+ \\d of \\d tasks: loss 0\\.3\\d+, accuracy 0\\.[89]\\d+"
  sort(unlist(lapply(output, found, pattern = line)))
}

test_that("task.R saves on the chief of two tasks, and both load and evaluate it", {
  skip_slow("runs a whole example")
  file <- withr::local_tempfile(fileext = ".keras")
  address <- free_addresses()
  script <- file.path(examples, "two_machines", "task.R")
  plans <- list(
    tf_config(chief = address[[1L]], worker = address[[2L]]),
    tf_config(worker = address) # the first is the chief
  )
  lines <- lapply(plans, function(plan) {
    unlink(file)
    printed <- do.call(outputs, lapply(cluster_env(plan), function(env) list(script, file, env)))
    expect_true(file.exists(file))
    lines_of_tasks(printed)
  })
  expect_identical(lapply(lines, substr, 1L, 8L), list(c("chief 0 ", "worker 0"), c("worker 0", "worker 1")))
  expect_length(unique(sub("^\\w+ \\d", "", unlist(lines))), 1L)
})

ports <- function() paste(module_of_core("network.ports")$free_ports(4L), collapse = ",")

test_that("four_sessions.R waits for four workers, which print the same numbers", {
  skip_slow("runs a whole example")
  file <- withr::local_tempfile(fileext = ".keras")
  script <- file.path(examples, "two_machines", "task.R")
  output <- outputs(list(file.path(examples, "four_sessions.R"), c(ports(), script, file)))
  lines <- lines_of_tasks(output)
  expect_identical(substr(lines, 1L, 19L), sprintf("worker %d of 4 tasks", 0:3))
  expect_length(unique(substring(lines, 20L)), 1L)
  expect_true(file.exists(file))
})

test_that("four_sessions.R ends the sessions if one fails", {
  skip_if_not(dir.exists(examples), "examples/ of the repository")
  folder <- withr::local_tempdir()
  task <- file.path(folder, "task.R")
  writeLines(c(
    "folder <- commandArgs(TRUE)",
    "file.create(file.path(folder, Sys.getpid()))",
    "while (length(dir(folder)) < 5) Sys.sleep(0.05)",
    "if (grepl('\"index\": 2', Sys.getenv('TF_CONFIG'))) quit(status = 3) else Sys.sleep(200)"
  ), task)
  script <- start_script(file.path(examples, "four_sessions.R"), c(ports(), task, folder))
  script$process$wait(100000)
  expect_identical(script$process$get_exit_status(), 1L)
  expect_match(script$output(), "Session 2 exited with status 3. The others were ended.", fixed = TRUE)
  pids <- setdiff(dir(folder), "task.R")
  expect_length(pids, 4L)
  expect_false(any(runs(as.integer(pids))))
})

test_that("sentences.R gives the same history by fit on one worker and by a loop on two", {
  skip_slow("runs a whole example")
  folders <- c(withr::local_tempdir(), withr::local_tempdir())
  env <- cluster_env(tf_config(worker = free_addresses()))
  script <- file.path(examples, "sentences.R")
  loop <- lapply(env, function(env) list(script, c("loop", folders[[2L]]), env))
  printed <- do.call(outputs, c(list(list(script, c("fit", folders[[1L]]))), loop))
  tables <- lapply(printed, function(output) {
    rows <- trimws(found("(?m)^ +\\d+( +\\d\\.\\d+){4} *$", output))
    do.call(rbind, lapply(strsplit(rows, " +"), as.numeric))
  })
  expect_null(tables[[3L]]) # the chief prints
  expect_identical(tables[[1L]][, 1L], seq_len(nrow(tables[[1L]])) + 0)
  expect_lt(nrow(tables[[1L]]), 20L) # EarlyStopping has stopped it
  # The last printed digit may be rounded the other way.
  expect_lt(max(abs(tables[[1L]] - tables[[2L]])), 1.01e-4)
  expect_gt(min(tables[[1L]][nrow(tables[[1L]]), c(2L, 4L)]), 0.8) # accuracies
  for (folder in folders) {
    expect_setequal(dir(folder), c("best.keras", "train", "validation"))
    expect_length(dir(file.path(folder, "train")), 1L)
  }
})

test_that("house_numbers.R prints the same lines with one worker and with two", {
  skip_slow("runs a whole example")
  files <- withr::local_tempfile(pattern = c("one", "two"), fileext = ".weights.h5")
  script <- file.path(examples, "house_numbers.R")
  env <- cluster_env(tf_config(worker = free_addresses()))
  workers <- lapply(env, function(env) list(script, files[[2L]], env))
  printed <- do.call(outputs, c(list(list(script, files[[1L]])), workers))
  rows <- lapply(printed, function(output) {
    lines <- found("(?m)^epoch \\d: loss .*, test accuracy .*$", output)
    do.call(rbind, lapply(lines, function(line) as.numeric(found("\\d[\\d.]*", line))))
  })
  expect_null(rows[[3L]]) # the chief prints
  expect_identical(rows[[1L]][, 1L], 1:5 + 0)
  # The last printed digit may be rounded the other way.
  expect_lt(max(abs(rows[[1L]] - rows[[2L]])), 1.01e-4)
  expect_gt(rows[[1L]][5L, 5L], 0.9) # accuracy on the test images
  expect_true(all(file.exists(files)))
})

test_that("end_to_end.R trains by the ring where NCCL has no GPU, and says so once", {
  skip_slow("runs a whole example")
  out_dir <- withr::local_tempdir()
  printed <- outputs(
    list(file.path(examples, "end_to_end.R"), c(out_dir, "2", "nccl")),
    list("nccl.R", character()) # a strategy of one's own says it, too
  )
  warning <- paste(
    "NCCL needs a GPU on every worker, and TensorFlow sees none here: the workers exchange gradients with",
    'the ring. Pass communication = "ring", or install a TensorFlow that can use the GPUs of this machine.'
  )
  for (output in printed) expect_length(gregexpr(warning, output, fixed = TRUE)[[1L]], 1L)
  expect_match(printed, warning, fixed = TRUE)
  expect_match(printed[[1L]], paste("Warning:", warning), fixed = TRUE)
  expect_no_match(printed, "Enabled NCCL")
  expect_match(printed[[1L]], "Trained on 2 workers, 4 epochs, global batch 64, seed 1\n", fixed = TRUE)
  losses <- val_losses(printed[[1L]])
  expect_length(losses, 4L)
  expect_lt(losses[[4L]], 1)
  rates <- sprintf("epoch %d ended with the learning rate %.4f", 1:4, c(0.0739, 0.1, 0.1, 0.1))
  expect_identical(readLines(file.path(out_dir, "learning_rates.txt")), rates)
  expect_setequal(dir(out_dir), c("best.keras", "learning_rates.txt"))
})
