# Arguments that a function does not have. In Python: tests/python/utils/test_removed.py.

# The text of an error in Python, line by line, without the bullets of R.
lines_of <- function(error) {
  sub("^[^`]{1,2} (Received|Fix): ", "\\1: ", strsplit(conditionMessage(error), "\n", fixed = TRUE)[[1L]])
}

test_that("each argument that is gone is refused in the words of Python", {
  core <- module_of_core("bridge")
  python <- reticulate::import("tfdistr")
  removed <- module_of_core("utils.removed")$REMOVED
  for (name in intersect(names(removed), getNamespaceExports("tfdistr"))) {
    for (argument in names(removed[[name]])) {
      given <- rlang::set_names(list("x", 7), c("", argument))
      error <- expect_error(do.call(name, given), class = "tfdistr_error_argument")
      expect_identical(as.character(error$call[[1L]]), name)
      in_python <- tryCatch(do.call(python[[name]], given), error = identity)
      expect_s3_class(in_python, "tfdistr.errors.ArgumentError")
      text <- as.character(core$in_r(reticulate::py_str(in_python)))
      expect_identical(paste(lines_of(error), collapse = "\n"), text)
    }
  }
})

test_that("what to write instead of an argument that is gone is R code, with the value", {
  refused <- function(fix, ...) {
    error <- expect_error(distributed_fit(small_model, matrix(1), ...), class = "tfdistr_error_argument")
    expect_identical(lines_of(error)[[3L]], paste0("Fix: Pass ", fix, "."))
    expect_s3_class(eval(parse(text = sub(".*? = ", "", fix, perl = TRUE))), "tfdistr_options")
  }
  refused("batch_size = per_worker(64)", per_worker_batch_size = 64)
  refused("batch_size = per_worker(64, scale_learning_rate = \"sqrt\")", scale_learning_rate = "sqrt")
  refused("strategy = mirrored(devices = c(\"cpu:0\", \"cpu:1\"))", devices = c("cpu:0", "cpu:1"))
  refused("strategy = model_parallel(placement = list(a = \"worker 0\"))", placement = c(a = "worker 0"))
  refused("failures = on_failure(step_timeout = 0.5)", step_timeout = 0.5)
})

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
