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
