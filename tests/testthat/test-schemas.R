# The JSON documents of a job, as R reads and writes them. Drawn ones: tests/cross/test_schemas.py.

# Each way in which jsonlite writes a document that it has read.
written_by_r <- function(text) {
  ways <- expand.grid(
    simplify = c(TRUE, FALSE), auto_unbox = c(TRUE, FALSE), digits = c(NA, 15L), null = c("list", "null"),
    na = c("null", "string"), stringsAsFactors = FALSE
  )
  lapply(seq_len(nrow(ways)), function(row) {
    document <- jsonlite::fromJSON(text, simplifyVector = ways$simplify[[row]])
    do.call(jsonlite::toJSON, c(list(document), as.list(ways[row, -1L])))
  })
}

test_that("the core reads the documents of a job again that R has written", {
  data <- some_digits()
  folder <- withr::local_tempdir()
  Sys.chmod(folder, "700")
  run <- file.path(folder, "run")
  fit <- distributed_fit(
    small_model, data$x, data$y,
    epochs = 2, batch_size = 40, seed = 1, validation_data = list(data$x, data$y),
    validation_freq = c(1, 2), class_weight = list("0" = 1, "1" = 2), run_dir = run,
    checkpoint_every = "epoch"
  )
  schemas <- module_of_core("schemas")
  documents <- list(
    job = readLines(file.path(run, "job.json")), run = readLines(file.path(run, "run.json")),
    result = jsonlite::toJSON(attr(fit, "session")$result$to_dict(), auto_unbox = TRUE, digits = NA)
  )
  for (name in names(documents)) {
    expected <- schemas$read(name, documents[[name]])
    for (text in written_by_r(documents[[name]])) {
      expect_equal(schemas$read(name, text), expected, tolerance = 1e-14)
    }
  }
  job <- jsonlite::fromJSON(documents$job)
  expect_identical(job$arguments$validation_freq$epochs, 1:2)
  expect_identical(job$arguments$class_weight, list("0" = 1, "1" = 2))
  expect_identical(job$data, 128L)
  expect_equal(fit$history, schemas$read("result", documents$result)$history, tolerance = 1e-14)
})

test_that("a document that R has broken is refused in the words of its schema", {
  schemas <- module_of_core("schemas")
  example <- schemas$load_schema("job")$examples[[1L]]
  example$workers <- "many"
  said <- tryCatch(
    schemas$read("job", jsonlite::toJSON(example, auto_unbox = TRUE)),
    error = conditionMessage
  )
  expect_match(said, "`workers` of job.json must be the number of workers, 1 or greater.", fixed = TRUE)
  expect_match(said, "Received: \"many\"", fixed = TRUE)
})
