# Clusters, strategies and options as plain lists.

test_that("descriptions are plain, print alike after readRDS(), and are the same objects of the core", {
  made <- list(
    local_cluster(2, env = c(A = "1")), ssh_cluster(c("a", "b")),
    slurm_cluster(2, options = list(mem = "8G")),
    ray_cluster(2, resources_per_worker = c(memory = 1)), on_failure(2, step_timeout = 3), per_worker(8),
    multi_worker_mirrored("ring"), mirrored(), one_device("cpu:0"), parameter_server(),
    model_parallel(c(first = "cpu:0"))
  )
  file <- withr::local_tempfile()
  saveRDS(made, file)
  read <- readRDS(file)
  expect_identical(read, made)
  for (place in seq_along(made)) {
    expect_identical(format(read[[place]]), format(made[[place]]))
    expect_output(print(read[[place]]), format(made[[place]])[[1L]], fixed = TRUE)
    expect_output(str(read[[place]]), paste0("^", class(made[[place]])[[1L]], ": "))
    objects <- lapply(list(read[[place]], made[[place]]), reticulate::r_to_py)
    expect_true(reticulate::py_to_r(objects[[1L]] == objects[[2L]]), info = format(made[[place]])[[1L]])
  }
  expect_identical(made[[1L]]$env, list(A = "1"))
  expect_identical(made[[5L]]$max_restarts, 2L)
  expect_identical(made[[6L]]$batch_size, 8L)
  expect_identical(made[[7L]]$communication, "ring")
})

test_that("a data set by name is described again after readRDS()", {
  read <- unserialize(serialize(load_dataset("digits", "test"), NULL))
  expect_identical(read$arrays(), load_dataset("digits", "test")$arrays())
  read <- unserialize(serialize(read, NULL))
  expect_s3_class(python_data(read, "x"), "tfdistr.data.datasets.Dataset")
  read <- unserialize(serialize(read, NULL))
  expect_identical(as.integer(read$dataset()$cardinality()$numpy()), 360L)
  expect_output(print(read), "Data set \"digits\", split \"test\"")
})
