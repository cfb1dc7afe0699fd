test_that("steps are batches of one pass over the examples", {
  expect_identical(steps_per_epoch(1000, 256), 4L)
  expect_identical(steps_per_epoch(1000, 256, drop_remainder = TRUE), 3L)
  expect_identical(steps_per_epoch(1437L, 64L), 23L)
  refused <- function(code, message) {
    expect_error(code, message, class = "tfdistr_error_argument", fixed = TRUE)
  }
  refused(steps_per_epoch(10, 32, TRUE), "10 examples, a global batch of 32")
  refused(steps_per_epoch(10.5, 32), "`n_examples` must be a whole number of at least 1.")
  refused(steps_per_epoch(10, 3, "yes"), "`drop_remainder` must be true or false.")
})

test_that("the learning rate grows with the workers", {
  expect_equal(scaled_learning_rate(0.1, 4), 0.4)
  expect_equal(scaled_learning_rate(0.1, 4, "sqrt"), 0.2)
  expect_equal(scaled_learning_rate(0.1, 4, "none"), 0.1)
  refused <- function(code, message) {
    expect_error(code, message, class = "tfdistr_error_argument", fixed = TRUE)
  }
  refused(scaled_learning_rate(0, 4), "`learning_rate` must be a number above 0.")
  refused(scaled_learning_rate(0.1, 0), "`num_workers` must be a whole number of at least 1.")
  refused(scaled_learning_rate(0.1, 4, "cubic"), "`scale` must be one of 'none', 'linear', 'sqrt'.")
})

test_that("distributed_fit() checks the warm-up and what is dropped", {
  fit <- function(...) distributed_fit(small_model, matrix(0, 10, 2), rep(0L, 10), ..., batch_size = 4)
  refused <- function(code, message) {
    expect_error(code, message, class = "tfdistr_error_argument", fixed = TRUE)
  }
  refused(per_worker(8, warmup_epochs = 1), "`warmup_epochs` needs a scaled learning rate.")
  refused(fit(batch_size = per_worker(8, warmup_epochs = 2, scale_learning_rate = "linear")), "`warmup_epochs` must be at most `epochs`")
  refused(
    distributed_fit(small_model, matrix(0, 10, 2), rep(0L, 10), batch_size = 11, drop_remainder = TRUE),
    "10 examples, a global batch of 11"
  )
})
