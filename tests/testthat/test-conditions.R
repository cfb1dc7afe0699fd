test_that("every error of the core arrives as the condition of its kind, with its message whole", {
  tf <- reticulate::import("tensorflow")
  expect_condition_class <- function(code, kind, python) {
    error <- expect_error(code, class = paste0("tfdistr_error_", kind))
    expect_s3_class(error, c("tfdistr_error", "rlang_error"))
    expect_s3_class(error$exception, paste0("tfdistr.errors.", python))
    said <- strsplit(reticulate::py_str(error$exception), "\n")[[1L]]
    shown <- vapply(said, function(line) reticulate::py_str(core()$in_r(line)), "")
    for (line in shown) expect_match(conditionMessage(error), line, fixed = TRUE)
    expect_match(said, "^Received: ", all = FALSE)
    expect_match(said, "^Fix: ", all = FALSE)
  }
  expect_condition_class(local_cluster(0), "argument", "ArgumentError")
  expect_condition_class(tf_config("10.0.0.1"), "cluster_config", "ClusterConfigError")
  dataset <- tf$data$Dataset$range(3L)
  expect_condition_class(auto_shard(dataset, 2, "file"), "data_shard", "DataShardError")
  withr::local_envvar(cluster_env(tf_config(c("127.0.0.1:2222", "127.0.0.1:2223"))[[1L]]))
  # TensorFlow has been used here, so it cannot start its server.
  by_ring <- function() multi_worker_mirrored_strategy(communication = "ring")
  expect_condition_class(by_ring(), "cluster_start", "ClusterStartError")
})

test_that("a failed worker is described by the fields of the condition", {
  failed <- function() {
    reticulate::py_run_string("
from tfdistr.errors import WorkerFailedError
from tfdistr.supervision.supervisor import WorkerStatus
def fail():
    error = WorkerFailedError('Worker 1 of 2 on here failed: {braces}', worker=1, host='here', pid=5,
                              exit_code=-9, traceback='its {traceback}', log='/its/log', fix='Look there.')
    error.workers = [WorkerStatus(i, 'here', 4 + i, 'failed', 1.5, '/its/log', -9) for i in range(2)]
    raise error
", convert = FALSE)$fail()
  }
  core()
  error <- expect_error(with_conditions(failed()), class = "tfdistr_error_worker_failed")
  expect_identical(
    error[c("worker", "host", "pid", "exit_code", "traceback", "log")],
    list(
      worker = 1L, host = "here", pid = 5L, exit_code = -9L, traceback = "its {traceback}", log = "/its/log"
    )
  )
  expect_identical(error$workers$index, 0:1)
  expect_snapshot(cat(conditionMessage(error)))
})

test_that("an error without a kind of its own is a tfdistr_error, and other errors of Python pass", {
  raise <- reticulate::py_run_string("
def raise_error(error):
    raise error
")$raise_error
  base <- module_of_core("errors")$TfdistrError("just so")
  error <- expect_error(with_conditions(raise(base)), class = "tfdistr_error")
  expect_identical(class(error)[[1L]], "tfdistr_error")
  expect_identical(error$message, c("just so"))
  key_error <- reticulate::import_builtins()$KeyError("k")
  expect_error(with_conditions(raise(key_error)), class = "python.builtin.KeyError")
})

test_that("first epochs in errors are counted as R counts them", {
  raise <- reticulate::py_run_string("
def raise_error(error):
    raise error
")$raise_error
  received <- "seed: 1 on worker 0, 2 on worker 1; initial_epoch: 0 on worker 0 and worker 1, 3 on worker 2"
  error <- module_of_core("errors")$JobMismatchError("Not the same.", received = received, fix = "Do it.")
  expect_error(
    with_conditions(raise(error)),
    "seed: 1 on worker 0, 2 on worker 1; initial_epoch: 1 on worker 0 and worker 1, 4 on worker 2",
    class = "tfdistr_error_job_mismatch"
  )
})

test_that("R's own errors look the same, and show braces as they are", {
  f <- function() abort("argument", "`x` must be {this}.", received = "{that}", fix = "Do {it}.")
  error <- expect_error(f(), class = "tfdistr_error_argument")
  expect_snapshot(cat(conditionMessage(error)))
  expect_identical(as.character(error$call), "f")
})

test_that("the call stack of an error of R, as the core asks for it, begins where Python called R", {
  caught <- reticulate::py_run_string("
def caught(function):
    try:
        function()
    except Exception as error:
        return error
def chained(function):
    try:
        try:
            function()
        except Exception as error:
            raise ValueError('in Python') from error
    except ValueError as error:
        return error
", convert = FALSE)
  inner <- function() stop("of R")
  asked <- function(error) reticulate::py_to_r(r_error(error))

  expect_null(r_error(caught$caught(3)))
  failed <- asked(caught$caught(function() inner()))[[1L]]
  expect_match(failed, "^simpleError in inner\\(\\) [(]test-conditions.R#[0-9]+[)]$")
  stack <- paste0(
    "^R call stack \\(innermost last\\):\n  1: [^\n]+\n  2: inner\\(\\) .+\n",
    "  3: stop\\(\"of R\"\\) .+$"
  )
  expect_match(asked(caught$caught(function() inner()))[[2L]], stack)
  expect_match(asked(caught$caught(recorded(function() inner(), new.env())))[[2L]], stack)
  expect_match(asked(caught$chained(function() rlang::abort("x", class = "mine")))[[1L]], "^mine")
  through <- function() reticulate::import_builtins()$int("no number")
  expect_match(asked(caught$caught(through))[[1L]], "^ValueError")
})

test_that("only a script that leaves errors to R exits with the status of a preemption", {
  withr::local_options(error = NULL)
  expect_true(is_script(c("R", "--no-echo", "--no-restore", "--file=train.R", "--args", "a")))
  expect_true(is_script(c("R", "--no-echo", "-e", "code")))
  expect_false(is_script(c("R", "--no-save", "--args", "-e"))) # standard input
  expect_false(is_script(c("rpy2", "--quiet"))) # R in a Python process
  withr::local_options(error = function() NULL)
  expect_false(is_script(c("R", "--file=train.R")))
})
