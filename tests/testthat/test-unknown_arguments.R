# Arguments that a function does not have.

test_that("an unknown name, and an argument without a name, are refused", {
  refused <- function(code, ...) {
    call <- substitute(code)
    error <- expect_error(code, class = "tfdistr_error_argument")
    for (part in c(...)) expect_match(conditionMessage(error), part, fixed = TRUE)
    expect_identical(error$call[[1L]], call[[1L]])
  }
  x <- matrix(1)
  refused(distributed_fit(small_model, x, epoch = 3), "no argument `epoch`.", "Write epochs.")
  refused(distributed_fit(small_model, x, zzz = 3), "no argument `zzz`.", "Its arguments are model, x, y,")
  refused(distributed_fit(small_model, x, 1, 32), "after `y` must be named", "Write batch_size = ...")
  refused(distributed_fit(small_model, x, workers = 2), "Pass cluster = local_cluster(workers = 2).")
  refused(compare_strategies(small_model, x, 1, 32), "arguments must be named", "Write epochs = 3")
  refused(local_cluster(2, 1), "after `workers` must be named", "Write ps = ...")
  refused(ssh_cluster("a", 2), "after `hosts` must be named", "Write workers = ...")
  refused(slurm_cluster(1, 2), "after `nodes` must be named", "Write workers = ...")
  refused(ray_cluster(1, 2), "after `workers` must be named", "Write resources_per_worker = ...")
  refused(tfdistr_run("a.R", 2, "b"), "after `workers` must be named", "Write arguments = ...")
  refused(tfdistr_test(2, "b"), "after `workers` must be named", "Write hosts = ...")
  refused(tfdistr_kubernetes("a.R", 2, "b"), "after `workers` must be named", "Write arguments = ...")
  refused(load_dataset("csv", "train", "a.csv"), "load_dataset() after `split` must be named")
  refused(multi_worker_mirrored_strategy(gradient_type = "a"), "`gradient_type`.", "Write gradient_dtype.")
})

test_that("methods refuse them by the name of their generic", {
  fit <- structure(list(), class = "tfdistr_fit") # which they need not
  refused <- function(code, message) {
    expect_error(code, message, fixed = TRUE, class = "tfdistr_error_argument")
  }
  refused(predict(fit, 1, batchsize = 8), "predict() has no argument `batchsize`.")
  refused(predict(fit, 1, 8), "The arguments of predict() after `newdata` must be named.")
  refused(evaluate(fit, 1, 2, step = 8), "Write steps.")
  refused(predict(fit, 1, x = 1), "Received: both")
})

test_that("an argument without a value is named", {
  expect_error(load_dataset(), "`name` must have a value", class = "tfdistr_error_argument")
  expect_error(ssh_cluster(), "Pass hosts = ...", fixed = TRUE, class = "tfdistr_error_argument")
  expect_error(per_worker(), "Pass batch_size = ...", fixed = TRUE, class = "tfdistr_error_argument")
})
