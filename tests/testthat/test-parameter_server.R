test_that("parameter servers train an R model as one process does", {
  digits <- some_digits()
  fit <- function(...) {
    distributed_fit(small_model, digits$x, digits$y, batch_size = 64, epochs = 2, seed = 1, ...)
  }
  servers <- fit(cluster = local_cluster(workers = 2, ps = 1), strategy = parameter_server(update = "sync"))
  alone <- fit()
  expect_equal(servers$history, alone$history, tolerance = 1e-6)
  expect_lt(difference(servers$model, alone$model), 1e-6)
  expect_setequal(servers$workers$task, c("worker 0", "worker 1", "ps 0", "chief 0"))
  expect_identical(servers$params$global_step, 4L)
  expect_identical(sum(is.na(servers$workers$local_steps)), 2L)
  expect_output(print(servers), "Trained on 2 workers", fixed = TRUE)
})
