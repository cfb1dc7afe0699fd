# Scripts as workers. What the core does: tests/python/cli.

script <- function(...) {
  withr::local_tempfile(lines = c(...), fileext = ".R", .local_envir = parent.frame())
}

# The folder of a run that fails, which is kept.
run_folder <- function() withr::local_tempfile(.local_envir = parent.frame())

shown <- function(code) paste(cli::cli_fmt(code), collapse = "\n")

test_that("tfdistr_run() runs a script of R as workers", {
  file <- script(
    "6 * 7", "cat('arguments', commandArgs(TRUE), Sys.getenv('A'), '\\n')",
    "cat('worker', tfdistr::worker_index(), 'of', tfdistr::num_workers(), '\\n')"
  )
  said <- shown(workers <- tfdistr_run(file, workers = 2, arguments = c("a", "b"), env = c(A = "x y")))
  expect_match(said, "[worker 0] [1] 42", fixed = TRUE)
  for (worker in 0:1) {
    expect_match(said, sprintf("[worker %d] arguments a b x y", worker), fixed = TRUE)
    expect_match(said, sprintf("[worker %d] worker %d of 2", worker, worker), fixed = TRUE)
  }
  expect_identical(workers$index, 0:1)
  expect_identical(workers$status, c("done", "done"))
})

test_that("the error of a worker arrives with its message and its calls", {
  file <- script(
    "inner <- function() stop('worker one is broken')", "outer <- function() inner()",
    "if (tfdistr::worker_index() == 1) outer()", "Sys.sleep(60)"
  )
  shown(failed <- expect_error(
    tfdistr_run(file, workers = 2, run_dir = run_folder()),
    class = "tfdistr_error_worker_failed"
  ))
  expect_match(conditionMessage(failed), "Worker 1 of 2 on \\S+ failed: simpleError: worker one is broken")
  expect_match(failed$traceback, "1: outer()", fixed = TRUE)
  expect_match(failed$traceback, "2: inner()", fixed = TRUE)
  expect_no_match(failed$traceback, "source", fixed = TRUE)
  expect_identical(failed$worker, 1L)
})

test_that("an error that the script catches ends nothing, and quit() has its status", {
  skip_slow("a session for each worker")
  file <- script("tryCatch(stop('caught'), error = function(e) cat('continued\\n'))", "quit(status = 7)")
  said <- shown(failed <- expect_error(
    tfdistr_run(file, 1, run_dir = run_folder()),
    class = "tfdistr_error_worker_failed"
  ))
  expect_match(said, "continued", fixed = TRUE)
  expect_identical(failed$exit_code, 7L)
})

test_that("a script that cannot be parsed is named", {
  failed <- expect_error(
    tfdistr_run(script("x <- ", ")"), 1, run_dir = run_folder()),
    class = "tfdistr_error_worker_failed"
  )
  expect_match(conditionMessage(failed), "unexpected ')'", fixed = TRUE)
})

test_that("the arguments are the options of the core", {
  options_of <- function(class) {
    fields <- reticulate::iterate(reticulate::import("attrs")$fields(class))
    setdiff(vapply(fields, function(field) field$name, ""), c("rscript", "_token"))
  }
  arguments <- function(call) setdiff(names(formals(call)), c("...", "output"))
  pods <- reticulate::import("tfdistr.cli.kubernetes.pod_options")$Pods
  expect_setequal(arguments(tfdistr_run), options_of(core()$Script))
  expect_setequal(arguments(tfdistr_test), options_of(core()$Workers))
  expect_setequal(arguments(tfdistr_kubernetes), options_of(pods))
})

test_that("vectors become what the core takes, and nothing is dropped", {
  given <- list(script = "a.R", arguments = "x", hosts = NULL, workers = 2, env = c(A = "1"))
  expect_identical(
    core_options(given, list(A = "0", B = "2")),
    list(script = "a.R", arguments = list("x"), workers = 2, env = list(B = "2", A = "1"))
  )
  expect_identical(core_options(list(env = NULL, hosts = character())), list(hosts = list()))
  refused <- function(env) {
    conditionMessage(expect_error(tfdistr_test(env = env), class = "tfdistr_error_argument"))
  }
  expect_match(refused("1"), "Each name in `env` must be the name of an environment variable")
  expect_match(refused(c(A = "1", A = "2")), "a list with the name 'A' more than once")
})

test_that("tfdistr_test() trains, compares and says that all is well", {
  skip_slow("a session for each worker")
  said <- shown(ok <- tfdistr_test(2))
  expect_true(ok)
  expect_match(said, "Training on 2 workers of this machine", fixed = TRUE)
  expect_match(said, "Gradients: ", fixed = TRUE)
  expect_match(said, "All is well.", fixed = TRUE)
})
