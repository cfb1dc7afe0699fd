test_that("ranks that mpiexec has started train together, without TF_CONFIG, and know their place", {
  skip_slow("ranks in R sessions of their own")
  outputs <- withr::local_tempfile(pattern = c("rank-0", "rank-1"))
  python <- reticulate::py_config()$python
  mpiexec <- file.path(dirname(python), "mpiexec")
  skip_if_not(file.exists(mpiexec), "mpiexec beside this Python")
  withr::local_envvar(
    RETICULATE_PYTHON = python, TF_CPP_MIN_LOG_LEVEL = "2", TF_CONFIG = NA, TMPDIR = withr::local_tempdir()
  )
  rank <- function(output) {
    c("-n", "1", file.path(R.home("bin"), "Rscript"), "--no-init-file",
      testthat::test_path("scripts", "joined.R"), output)
  }
  ended <- processx::run(
    mpiexec, c(rank(outputs[[1L]]), ":", rank(outputs[[2L]])),
    timeout = 120, error_on_status = FALSE, cleanup_tree = TRUE
  )
  expect_identical(ended$status, 0L, info = ended$stderr)
  ranks <- lapply(outputs, readRDS)
  expect_identical(ranks[[1L]]$history, ranks[[2L]]$history)
  expect_identical(ranks[[1L]]$weights, ranks[[2L]]$weights)
  expect_identical(ranks[[1L]]$seed, ranks[[2L]]$seed)
  expect_identical(vapply(ranks, function(rank) rank$workers$index, 1L), 0:1)
  expect_identical(vapply(ranks, function(rank) rank$communication, ""), c("mpi", "mpi"))
  for (index in 0:1) expect_identical(ranks[[index + 1L]]$place, rep(list(list(index, 2L, index == 0L)), 2L))
})
