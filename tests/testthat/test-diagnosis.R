test_that("doctor() gives a data frame, with a fix for what is wrong", {
  withr::local_envvar(TF_CONFIG = "")
  config <- tf_config(worker = c("127.0.0.1:2", "no-such-host.invalid:2222"), type = "worker", index = 0)
  rows <- doctor(config)
  expect_s3_class(rows, c("tfdistr_doctor", "data.frame"), exact = TRUE)
  expect_named(rows, c("check", "status", "found", "fix"))
  bad <- rows[rows$check == "worker 1, no-such-host.invalid:2222", ]
  expect_identical(bad$status, "FAIL")
  expect_identical(bad$found, "name does not resolve")
  expect_match(bad$fix, "Correct the name")
  expect_match(rows$found[rows$check == "R"], paste0("^", getRversion(), ", ", R.home("bin"), "/Rscript$"))
  shown <- capture.output(print(rows))
  expect_match(shown[[1L]], "^TF_CONFIG +ok +worker 0 of a cluster of 2 worker$")
  expect_match(shown[[length(shown)]], "of [0-9]+ checks failed[.]$")
})

test_that("TF_CONFIG is that of this session, and arguments are checked", {
  withr::local_envvar(TF_CONFIG = "{")
  rows <- doctor(timeout = 60)
  expect_identical(rows$status[[1L]], "FAIL")
  expect_match(rows$found[[1L]], "^TF_CONFIG must be JSON")
  expect_error(doctor(timeout = 0), "`timeout` must be a number of seconds", class = "tfdistr_error_argument")
  expect_error(doctor(hosts = "-x"), "no \"-\" before it", class = "tfdistr_error_argument", fixed = TRUE)
})
