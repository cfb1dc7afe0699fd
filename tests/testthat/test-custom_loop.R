test_that("the place of this process is that of TF_CONFIG, of the launcher, or that of a process alone", {
  place <- function(...) {
    withr::with_envvar(c(TF_CONFIG = NA, PMI_RANK = NA, PMI_SIZE = NA, ...), {
      list(worker_index(), num_workers(), is_chief())
    })
  }
  plan <- tf_config(worker = c("a:1", "b:2", "c:3"))
  strategy <- make_strategy()
  expect_identical(with(strategy$scope(), place(cluster_env(plan[[2L]]))), list(0L, 1L, TRUE))
  expect_identical(place(cluster_env(plan[[3L]])), list(2L, 3L, FALSE))
  server <- tf_config(chief = "a:1", worker = "b:2", ps = "c:3", type = "ps", index = 0)
  expect_identical(place(cluster_env(server)), list(NULL, 1L, FALSE))
  for (call in list(worker_index, num_workers, is_chief)) {
    expect_error(withr::with_envvar(c(TF_CONFIG = "{"), call()), class = "tfdistr_error_cluster_config")
  }
})

test_that("losses that can't be averaged, and calls outside of a replica, are errors", {
  refused <- function(code, message) {
    expect_error(code, message, class = "tfdistr_error_argument", fixed = TRUE)
  }
  losses <- array(c(1, 2, 6))
  refused(average_loss(2), "`losses` must hold one loss for each example.")
  refused(average_loss(losses, array(1)), "`sample_weight` must have the shape of `losses`")
  refused(average_loss(losses, global_batch_size = 0.5), "`global_batch_size` must be a whole number")
  withr::local_envvar(TF_CONFIG = NA)
  strategy <- make_strategy()
  with(strategy$scope(), {
    refused(average_loss(losses), "average_loss() must be called in the function that strategy$run() runs")
    refused(regularization_loss(list(1)), "regularization_loss() must be called in the function")
  })
  expect_equal(strategy$run(function() average_loss(losses))$numpy(), 3)
})
