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
  refused(compare_strategies(small_model, x, 1, 32), "arguments must be named", "Write epochs = 3")
  refused(local_cluster(2, core_per_worker = 1), "`core_per_worker`.", "Write cores_per_worker.")
  refused(local_cluster(2, 1), "after `workers` must be named", "Write ps = ...")
  refused(ssh_cluster("a", 2), "after `hosts` must be named", "Write workers = ...")
  refused(ssh_cluster("a", worker = 2), "no argument `worker`.", "Write workers.")
  refused(slurm_cluster(1, 2), "after `nodes` must be named", "Write workers = ...")
  refused(slurm_cluster(1, partitions = "a"), "no argument `partitions`.", "Write partition.")
  refused(ray_cluster(1, 2), "after `workers` must be named", "Write resources_per_worker = ...")
  refused(ray_cluster(1, adress = "auto"), "no argument `adress`.", "Write address.")
  refused(tfdistr_run("a.R", 2, "b"), "after `workers` must be named", "Write arguments = ...")
  refused(tfdistr_run("a.R", host = "b"), "no argument `host`.", "Write hosts.")
  refused(tfdistr_test(2, "b"), "after `workers` must be named", "Write hosts = ...")
  refused(tfdistr_test(2, host = "b"), "no argument `host`.", "Write hosts.")
  refused(tfdistr_kubernetes("a.R", 2, "b"), "after `workers` must be named", "Write arguments = ...")
  refused(tfdistr_kubernetes("a.R", images = "b"), "no argument `images`.", "Write image.")
})
