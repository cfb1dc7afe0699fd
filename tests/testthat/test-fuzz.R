# The values that tests/python/training/test_job_any_input.py reads, too: valid, or refused alike.

corpus <- function() {
  decode <- function(value) {
    number <- is.list(value) && identical(names(value), "number") # what JSON has no form for
    if (number) as.numeric(sub("nan", "NaN", value$number)) else if (is.list(value)) unlist(value) else value
  }
  cases <- jsonlite::read_json(testthat::test_path("..", "faults", "corpus.json"))
  lapply(cases, function(case) utils::modifyList(case, list(arguments = lapply(case$arguments, decode))))
}

# "" if it was not refused; else the class of the error, and "other" for one that is not of tfdistr.
refusal <- function(code) {
  tryCatch({
    code
    ""
  }, error = function(error) {
    if (!inherits(error, "tfdistr_error")) return(paste("other:", conditionMessage(error)))
    sub("tfdistr_error_", "", class(error)[[1L]])
  })
}

expect_as_in_python <- function(name, call) {
  cases <- Filter(function(case) case$`function` == name, corpus())
  testthat::expect_gt(length(cases), 5)
  for (case in cases) {
    shown <- jsonlite::toJSON(case$arguments)
    testthat::expect_identical(refusal(call(case)), case$refused %||% "", info = shown)
  }
}

test_that("clusters are made or refused as in Python", {
  expect_as_in_python("local_cluster", function(case) do.call(local_cluster, case$arguments))
  expect_as_in_python("ssh_cluster", function(case) {
    do.call(ssh_cluster, utils::modifyList(list(hosts = "a"), case$arguments))
  })
})

test_that("a TF_CONFIG is read or refused as in Python", {
  expect_as_in_python("parse_tf_config", function(case) {
    with_conditions(core()$parse_tf_config(case$arguments$text))
  })
})

test_that("distributed_fit() refuses what it refuses in Python, and starts nothing", {
  x <- matrix(0, 10, 2)
  started <- withr::local_tempdir()
  withr::local_envvar(TMPDIR = started)
  expect_as_in_python("distributed_fit", function(case) {
    if (is.null(case$refused)) return(NULL) # it would train
    arguments <- list(
      model = function() NULL, x = x, y = x[, 1], cluster = local_cluster(2),
      strategy = multi_worker_mirrored(communication = "ring")
    )
    do.call(distributed_fit, utils::modifyList(arguments, case$arguments))
  })
  expect_identical(dir(started), character())
})
