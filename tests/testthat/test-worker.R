test_that("Ctrl-C ends the workers and is R's interrupt", {
  run_dir <- file.path(withr::local_tempdir(), "run")
  script <- start_script("long-job.R", run_dir)
  wait_until(function() any(grepl('"epoch_end"', events(run_dir))), 90, "training to begin")
  workers <- pids(run_dir)
  expect_length(workers, 2L)
  expect_true(all(runs(workers)))

  script$process$interrupt()
  script$process$wait(15000)
  expect_false(script$process$is_alive())
  expect_match(script$output(), "result: interrupt condition")
  expect_false(any(runs(workers)))
  expect_false(dir.exists(file.path(run_dir, "tmp")))
})

test_that("R sessions started by hand with tf_config() join and train as one worker does", {
  results <- two_tasks("joined.R", cluster_env(tf_config(worker = free_addresses())))
  digits <- some_digits()
  seed <- results[[1L]]$seed
  here <- distributed_fit(small_model, digits$x, digits$y, batch_size = 64, epochs = 2, seed = seed)
  expect_identical(here$params$communication, "none")
  set.seed(seed)
  drawn <- runif(1)
  for (index in 1:2) {
    expect_identical(results[[index]]$seed, seed)
    expect_identical(results[[index]]$drawn, drawn)
    expect_equal(results[[index]]$history, here$history, tolerance = 1e-6)
    expect_equal(results[[index]]$weights, here$model$get_weights(), tolerance = 1e-6)
    expect_identical(results[[index]]$workers$index, index - 1L)
    expect_identical(results[[index]]$communication, "mpi")
    expect_identical(results[[index]]$place, rep(list(list(index - 1L, 2L, index == 1L)), 2L))
    expect_identical(results[[index]]$hooked, 1) # what R packages do when Keras is imported came after it
  }
})

test_that("Keras's own fit trains under the strategy, with R functions, where jsonlite wrote TF_CONFIG", {
  skip_slow("starts two R sessions")
  cluster <- list(worker = free_addresses())
  configs <- lapply(0:1, function(index) {
    config <- list(cluster = cluster, task = list(type = "worker", index = index))
    c(TF_CONFIG = as.character(jsonlite::toJSON(config, auto_unbox = TRUE)))
  })
  results <- two_tasks("stock.R", configs)
  expect_equal(results[[1L]]$history, results[[2L]]$history, tolerance = 1e-6)
  expect_equal(results[[1L]]$weights, results[[2L]]$weights, tolerance = 1e-6)
  expect_identical(lapply(results, `[[`, "epochs"), list(0:1, 0:1))
  expect_identical(vapply(results, `[[`, 1L, "index"), 0:1)
  expect_identical(lapply(results, `[[`, "hooked"), list(1, 1))
  expect_identical(vapply(results, `[[`, TRUE, "chief"), c(TRUE, FALSE))
  expect_lt(results[[1L]]$history$loss[[2L]], results[[1L]]$history$loss[[1L]])
})

test_that("functions that a full disk refuses are an error that says so", {
  disk <- withr::local_tempdir()
  options <- c("-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", disk)
  mounted <- system2("mount", options, stdout = FALSE, stderr = FALSE) == 0L
  skip_if(!mounted, "no file system can be mounted here")
  withr::defer(system2("umount", disk))
  file <- file.path(disk, "job.rds")
  save <- function(used) {
    function_of <- function() used
    force(used)
    with_conditions(save_functions(list(model = function_of), 1L, disk))
  }
  large <- expect_error(save(runif(300000)), class = "tfdistr_error_checkpoint")
  expect_match(conditionMessage(large), "A file for the workers could not be written: ")
  expect_match(conditionMessage(large), paste0("Received: ", file, ", and 0 bytes are free"), fixed = TRUE)
  expect_match(conditionMessage(large), "Fix: Make room, or name a `run_dir` on another disk", fixed = TRUE)
  expect_false(file.exists(file))
  suppressWarnings(try(writeBin(raw(2^21), file.path(disk, "filling")), silent = TRUE))
  # R only warns of the end of a file that is lost.
  small <- expect_error(with_conditions(save_rds(1, file, NULL)), class = "tfdistr_error_checkpoint")
  expect_match(conditionMessage(small), "No space left on device")
})
