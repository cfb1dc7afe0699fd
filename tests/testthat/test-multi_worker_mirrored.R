test_that("without TF_CONFIG it is a strategy for one worker, under which Keras trains", {
  withr::local_envvar(TF_CONFIG = NA)
  strategy <- multi_worker_mirrored_strategy()
  expect_s3_class(strategy, "tfdistr.strategies.multi_worker_mirrored.MultiWorkerMirroredStrategy")
  expect_identical(strategy$num_workers, 1L)
  expect_identical(strategy$worker_index, 0L)
  expect_true(strategy$is_chief)
  with(strategy$scope(), model <- small_model())
  digits <- some_digits()
  history <- model$fit(digits$x, as.array(digits$y), epochs = 2L, verbose = 0L)
  expect_lt(history$history$loss[[2L]], history$history$loss[[1L]])
  expect_warning(
    model$fit(digits$x, as.array(digits$y), 32L, 2L, verbose = 0L, steps_per_epoch = 6L),
    "only 4 batches for steps_per_epoch = 6 and 2 epochs. Leave `steps_per_epoch` out, or repeat",
    class = "tfdistr_warning"
  )
})

test_that("it takes the options of TensorFlow", {
  withr::local_envvar(TF_CONFIG = NA)
  tf <- reticulate::import("tensorflow")
  experimental <- tf$distribute$experimental
  options <- experimental$CommunicationOptions(
    bytes_per_pack = 50 * 1024^2, timeout_seconds = 90,
    implementation = experimental$CommunicationImplementation$RING
  )
  expect_identical(multi_worker_mirrored_strategy(communication_options = options)$num_workers, 1L)
  resolver <- tf$distribute$cluster_resolver$TFConfigClusterResolver()
  expect_identical(multi_worker_mirrored_strategy(resolver, options)$num_workers, 1L)
  expect_identical(make_strategy(communication_options = options)$num_workers, 1L)
  refused <- function(text, ...) {
    expect_error(multi_worker_mirrored_strategy(...), text, class = "tfdistr_error_argument", fixed = TRUE)
  }
  both <- "cannot be combined with `communication_options`"
  refused(both, communication = "ring", communication_options = options)
  refused(both, bytes_per_pack = 1, communication_options = options)
  refused("must be a tf$distribute$experimental$Comm", communication_options = "nccl")
  endless <- experimental$CommunicationOptions(timeout_seconds = Inf)
  refused("`timeout_seconds` of", communication_options = endless)
  refused("Fix: Pass communication = \"nccl\" by its name", "nccl")
})
