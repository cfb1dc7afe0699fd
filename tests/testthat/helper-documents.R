# The code of vignettes and documents, and what it prints.

# The lines of a file of the repository, by its folder and name.
document_lines <- function(name, folder = "vignettes") {
  file <- file.path("../..", folder, name)
  testthat::skip_if_not(file.exists(file), paste0(folder, "/ of the repository"))
  readLines(file)
}

# The lines between a line that matches and the end of that chunk or block.
block <- function(lines, begin) {
  from <- grep(begin, lines)[[1L]]
  lines[seq(from + 1L, from + which(lines[-seq_len(from)] == "```")[[1L]] - 1L)]
}

# What a program prints that has these lines.
# nolint start: object_usage_linter. The functions of helper-jobs.R.
printed <- function(code, folder, name = "program.R") {
  file <- file.path(folder, name)
  writeLines(code, file)
  script <- start_script(file, env = c(R_LIBS = libraries(), TF_CONFIG = ""), folder = folder)
  script$process$wait(200000)
  testthat::expect_identical(script$process$get_exit_status(), 0L, info = script$output())
  strsplit(script$output(), "\n")[[1L]]
}
# nolint end
