# testthat over the installed package; an argument is the name of one test file, without "test-" and ".R".
filter <- commandArgs(TRUE)
Sys.setenv(
  NOT_CRAN = "true", # or snapshots would be skipped
  PYTHONPATH = normalizePath("tests/without") # as in tests/conftest.py
)
testthat::test_dir(
  "tests/testthat",
  filter = if (length(filter)) paste0("^", filter, "$"),
  package = "tfdistr",
  load_package = "installed",
  reporter = testthat::ProgressReporter$new(max_failures = Inf),
  stop_on_failure = TRUE
)
