test_that("several devices of one process train as one does, but not with R functions in the model", {
  skip_slow("a session with several devices")
  output <- withr::local_tempfile()
  script <- start_script("mirrored.R", output)
  script$process$wait(120000)
  expect_identical(script$process$get_exit_status(), 0L, info = script$output())
  found <- readRDS(output)
  expect_lt(found$mirrored, 1e-6)
  expect_identical(found$strategy, "mirrored")
  expect_identical(found$predictions, c(50L, 2L))
  expect_identical(found$one_device, 0)
  expect_identical(found$epochs, 2)
  expect_match(found$loss, "Received: the R function loss", fixed = TRUE)
  expect_match(found$layer, "Received: the R function layer lambda", fixed = TRUE)
})

test_that("another object of TensorFlow sums over the devices", {
  tf <- reticulate::import("tensorflow")
  ops <- tf$distribute$HierarchicalCopyAllReduce(num_packs = 2L)
  strategy <- make_strategy("mirrored", devices = "/cpu:0", cross_device_ops = ops)
  expect_identical(strategy$num_replicas_in_sync, 1L)
  expect_error(
    make_strategy("mirrored", cross_device_ops = "nccl"),
    "`cross_device_ops` must be a tf.distribute.CrossDeviceOps.",
    class = "tfdistr_error_argument"
  )
})
