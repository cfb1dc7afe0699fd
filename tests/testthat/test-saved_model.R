# The layer for a SavedModel, as docs/model.md shows it, in an R session with keras3.

test_that("a layer of a SavedModel trains on two workers as on one, or is frozen", {
  skip_slow("R sessions load keras3 and TensorFlow")
  page <- "../../docs/model.md"
  skip_if_not(file.exists(page), "docs/ of the repository")
  lines <- readLines(page)
  from <- grep("run by: tests/testthat/test-saved_model.R", lines, fixed = TRUE) + 2L
  to <- from + which(lines[-seq_len(from)] == "```")[[1L]] - 1L
  layer <- withr::local_tempfile(lines = lines[from:to], fileext = ".R")
  results <- withr::local_tempfile()
  saved <- withr::local_tempdir()
  script <- start_script("saved_model.R", c(results, layer, saved), c(R_LIBS = libraries(), no_gpus()))
  script$process$wait(200000)
  expect_identical(script$process$get_exit_status(), 0L, info = script$output())
  results <- readRDS(results)
  for (case in results[c("trained", "frozen")]) {
    expect_lt(max(abs(unlist(case$one) - unlist(case$two))), 1e-6)
  }
  expect_identical(results$frozen$one$weights[1:2], results$saved)
  moved <- max(abs(results$trained$one$weights[[1L]] - results$saved[[1L]]))
  expect_gt(moved, 1e-3)
})
