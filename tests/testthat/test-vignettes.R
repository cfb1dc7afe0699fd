# The vignettes in R, as they are printed: their code runs, with keras3, and what they show is what it prints.

# nolint start: object_usage_linter. The functions of helper-documents.R and of helper-jobs.R.
# The numbers in the five lines of a history.
history <- function(lines) {
  header <- grep("^ *epoch +loss", lines)[[1L]]
  rows <- strsplit(trimws(lines[header + 1:5]), " +")
  do.call(rbind, lapply(rows, function(row) as.numeric(row[-1L])))
}

test_that("the loop of custom-loops.Rmd prints the same history with one worker and with two", {
  skip_slow("trains in several sessions")
  lines <- document_lines("custom-loops.Rmd")
  folder <- withr::local_tempdir()
  one <- history(printed(block(lines, "^```\\{r loop\\}"), folder, "custom_loop.R"))
  start <- block(lines, "^```\\{r start\\}")
  ports <- sub(".*:", "", free_addresses())
  for (number in 1:2) start <- sub(paste0("1000", number), ports[[number]], start)
  two <- history(printed(start, folder))
  # The last printed digit may be rounded the other way.
  expect_lt(max(abs(one - two)), 1.01e-4)
  expect_identical(one[, 1L], 1:5 + 0)
  # On another processor other kernels may train; what the vignette shows must be about right there.
  expect_lt(max(abs(one - history(lines))), 0.05)
})

test_that("the strategy of keras3-to-cluster.Rmd prints what is shown with one worker and with two", {
  skip_slow("trains in several sessions")
  lines <- document_lines("keras3-to-cluster.Rmd")
  folder <- withr::local_tempdir()
  numbers <- function(lines) {
    rows <- grep("\\[\\d,\\] +[0-9.]+ [0-9.]+$", lines, perl = TRUE, value = TRUE)
    as.numeric(unlist(strsplit(sub(".*\\] +", "", rows), " ")))
  }
  one <- numbers(printed(block(lines, "^```\\{r strategy\\}"), folder, "fit.R"))
  two <- numbers(printed("tfdistr::tfdistr_run(\"fit.R\", workers = 2)", folder))
  expect_length(c(one, two), 12L)
  # The last printed digit may be rounded the other way.
  expect_lt(max(abs(one - two)), 1.01e-4)
  # On another processor other kernels may train; what the vignette shows must be about right there.
  expect_lt(max(abs(one - numbers(lines))), 0.05)
})

test_that("the call of keras3-to-cluster.Rmd prints what is shown, twice the same", {
  skip_slow("trains in several sessions")
  lines <- document_lines("keras3-to-cluster.Rmd")
  output <- printed(block(lines, "^```\\{r call\\}"), withr::local_tempdir())
  numbers <- function(lines) {
    rows <- grep("^ +0[.][0-9]{4} +0[.][0-9]{4} $", lines, value = TRUE)
    lapply(strsplit(trimws(rows), " +"), as.numeric)
  }
  expect_identical(lengths(numbers(output)), c(2L, 2L))
  expect_lt(max(abs(do.call(`-`, numbers(output)))), 1.01e-4)
  # On another processor other kernels may train; what the vignette shows must be about right there.
  expect_lt(max(abs(unlist(numbers(output)) - unlist(numbers(lines)))), 0.05)
})

test_that("the job of tfdistr.Rmd prints what is shown", {
  skip_slow("trains in several sessions")
  lines <- document_lines("tfdistr.Rmd")
  folder <- withr::local_tempdir()
  chunks <- unlist(lapply(c("model", "fit", "result"), function(label) {
    block(lines, sprintf("^```\\{r %s\\}", label))
  }))
  shown <- unlist(lapply(c("fit", "result"), function(label) {
    block(lines[-seq_len(grep(sprintf("^<!-- printed by %s -->", label), lines))], "^```$")
  }))
  output <- printed(chunks, folder)
  output <- output[seq(grep("^Trained on", output), length(output))]
  output <- grep("^[EWI]\\d{4} |^WARNING: All log", output, value = TRUE, invert = TRUE) # lines of TensorFlow
  numbers <- function(lines) {
    found <- regmatches(lines, gregexpr("(?<![\\w.])[01]\\.\\d{4,}", lines, perl = TRUE))
    as.numeric(unlist(found))
  }
  expect_length(numbers(output), length(numbers(shown)))
  expect_lt(max(abs(numbers(output) - numbers(shown))), 0.05)
  words <- function(lines) gsub("^(Time:).*|[0-9.]+|/tmp.*| +", "\\1 ", lines) # each machine has other times
  expect_identical(words(output), words(shown))
})

test_that("tidymodels.Rmd prints what is shown", {
  skip_slow("trains twelve models")
  for (package in c("hardhat", "parsnip", "recipes", "rsample", "tune", "workflows", "yardstick")) {
    skip_if_not(length(find.package(package, quiet = TRUE)) > 0L, package) # does not load it
  }
  lines <- document_lines("tidymodels.Rmd")
  chunks <- unlist(lapply(c("workflow", "tune", "save", "model", "mlp"), function(label) {
    code <- block(lines, sprintf("^```\\{r %s\\}", label))
    shown <- block(lines[-seq_len(grep(sprintf("^<!-- printed by %s -->", label), lines))], "^```$")
    c(code, sprintf("cat(\"shown: %s\\n\")", gsub("\"", "'", shown)))
  }))
  output <- printed(chunks, withr::local_tempdir())
  output <- gsub("\"", "'", grep("^(shown: )?\\[1\\]", output, value = TRUE))
  is_shown <- startsWith(output, "shown: ")
  shown <- sub("^shown: ", "", output[is_shown])
  expect_identical(sum(is_shown), 7L)
  number <- "0[.][0-9]+" # the shares of right classes, on another processor about the same
  expect_identical(sub(number, "", output[!is_shown]), sub(number, "", shown))
  shares <- function(lines) as.numeric(unlist(regmatches(lines, gregexpr(number, lines))))
  expect_lt(max(abs(shares(output[!is_shown]) - shares(shown))), 0.11)
})

test_that("examples/tutorial/tutorial.Rmd prints what tutorial.md shows", {
  skip_slow("trains in several sessions")
  skip_if_not_installed("knitr")
  folder <- file.path("../../examples/tutorial")
  skip_if_not(dir.exists(folder), "examples/ of the repository")
  run <- withr::local_tempdir()
  file.copy(file.path(folder, "tutorial.Rmd"), run)
  code <- 'knitr::knit("tutorial.Rmd", "tutorial.md", quiet = TRUE)'
  writeLines(code, file.path(run, "program.R"))
  script <- start_script(file.path(run, "program.R"), env = c(TF_CONFIG = ""), folder = run)
  script$process$wait(280000)
  expect_identical(script$process$get_exit_status(), 0L, info = script$output())
  shown <- lapply(list(run, folder), function(folder) {
    grep("^#>", readLines(file.path(folder, "tutorial.md")), value = TRUE)
  })
  number <- "[0-9]+[.][0-9]+"
  words <- function(lines) gsub(" +", " ", gsub(number, "", lines))
  numbers <- function(lines) as.numeric(unlist(regmatches(lines, gregexpr(number, lines))))
  expect_identical(words(shown[[1L]]), words(shown[[2L]]))
  expect_gt(length(numbers(shown[[1L]])), 15L)
  # On another processor other kernels may train; what is shown must be about right there.
  expect_lt(max(abs(numbers(shown[[1L]]) - numbers(shown[[2L]]))), 0.05)
  expect_length(grep("^#> \\[1\\] TRUE$", shown[[1L]]), 5L)
})
# nolint end
