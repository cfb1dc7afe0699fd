# Scripts as workers. What the core does: tests/python/script.

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
  skip_slow()
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

test_that("what cannot be run is refused", {
  said <- function(code) conditionMessage(expect_error(code, class = "tfdistr_error_argument"))
  expect_match(said(tfdistr_run("train.sh")), "a file of Python (.py) or R (.R).", fixed = TRUE)
  expect_match(said(tfdistr_run("no-such-file.R")), "The script must be a file that exists.", fixed = TRUE)
  expect_match(said(tfdistr_run(script("1"), 1.5)), "`workers` must be a whole number", fixed = TRUE)
  expect_match(said(tfdistr_test(hosts = c("a", "b"), workers = 3)), "3 workers on 2 hosts", fixed = TRUE)
  expect_error(tfdistr_run(script("1"), 1, 5), class = "rlib_error_dots_nonempty")
})

test_that("tfdistr_test() trains, compares and says that all is well", {
  skip_slow()
  said <- shown(ok <- tfdistr_test(2))
  expect_true(ok)
  expect_match(said, "Training on 2 workers of this machine", fixed = TRUE)
  expect_match(said, "Gradients: ", fixed = TRUE)
  expect_match(said, "All is well.", fixed = TRUE)
})
