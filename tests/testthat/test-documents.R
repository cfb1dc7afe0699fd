# Documents that train: the progress is a line for each epoch, as in a log.

document <- function(extension) {
  lines <- c(
    "---", "title: A document", "---", "",
    "```{r}", "library(tfdistr)", "x <- matrix(stats::rnorm(120), 60)", "y <- rep(0:1, 30)",
    "model <- function() {",
    "  keras <- reticulate::import('keras')",
    "  model <- keras$Sequential(list(keras$layers$Dense(1L, 'sigmoid')))",
    "  model$compile('sgd', 'binary_crossentropy')",
    "  model", "}",
    "fit <- distributed_fit(model, x, y, epochs = 3, batch_size = 10, seed = 1, verbose = 1)",
    "```", "", "silent:", "",
    "```{r}", "fit <- distributed_fit(model, x, y, batch_size = 10, seed = 1)", "```", "", "shown:", "",
    "```{r}", "fit", "```"
  )
  withr::local_tempfile(lines = lines, fileext = extension, .local_envir = parent.frame())
}

# nolint start: object_usage_linter. The functions of testthat.
expect_lines_of_epochs <- function(text) {
  parts <- strsplit(paste(text, collapse = "\n"), "silent:|shown:")[[1L]]
  expect_length(parts, 3L)
  epochs <- regmatches(parts[[1L]], gregexpr("Epoch [1-3]/3  [0-9.]+ s  loss: [0-9.]+", parts[[1L]]))[[1L]]
  expect_length(epochs, 3L)
  expect_no_match(parts[[2L]], "Epoch")
  expect_match(parts[[3L]], "Trained on 1 worker, 1 epoch, ", fixed = TRUE)
  expect_no_match(paste(parts, collapse = ""), "[\r\b\033]")
}
# nolint end

test_that("an R Markdown document has one line for each epoch", {
  skip_if_not(rmarkdown::pandoc_available(), "pandoc")
  source <- document(".Rmd")
  output <- withr::local_tempfile(fileext = ".md")
  rmarkdown::render(source, "md_document", output, quiet = TRUE, envir = new.env())
  expect_lines_of_epochs(readLines(output))
})
