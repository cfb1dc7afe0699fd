# Where R users call tfdistr: targets, Shiny, documents, other sessions, RStudio.

withr::local_envvar(TZ = "UTC", .local_envir = teardown_env()) # targets calls timedatectl, which may warn

model <- function() {
  keras <- reticulate::import("keras")
  model <- keras$Sequential(list(keras$layers$Dense(4L, "relu"), keras$layers$Dense(1L)))
  model$compile("sgd", "mse")
  model
}
x <- as.matrix(mtcars[c("wt", "drat")])
y <- mtcars$mpg / 20
fit_here <- function(...) distributed_fit(model, x, y, epochs = 2, seed = 1, verbose = 0, ...)

test_that("the same job gives the same bytes, without times and processes", {
  fits <- list(fit_here(), fit_here())
  expect_false(identical(fits[[1L]]$workers$seconds, fits[[2L]]$workers$seconds))
  bytes <- lapply(fits, serialize, NULL)
  expect_identical(bytes[[1L]], bytes[[2L]])
  predict(fits[[1L]], x) # makes the model
  expect_identical(serialize(fits[[1L]], NULL), bytes[[2L]])
  from_frame <- function() {
    large <- stats::runif(1e5)
    fit_here(callbacks = if (length(large)) list())
  }
  expect_lt(length(serialize(from_frame(), NULL)), length(bytes[[1L]]) + 1e5)
  read <- unserialize(bytes[[1L]])
  expect_identical(names(read$workers), names(fits[[1L]]$workers))
  expect_identical(read$workers$pid, NA)
  expect_output(print(read), "Trained on 1 worker")
  expect_null(summary(read)$times)
})

# nolint start: object_usage_linter. The functions of helper-jobs.R and helper-documents.R.
test_that("targets: a target that is built again is the same, and what depends on it is up to date", {
  skip_slow("builds targets twice, on workers")
  skip_if_not_installed("targets")
  withr::local_dir(withr::local_tempdir())
  list2env(list(model = model, x = x, y = y), globalenv())
  withr::defer(rm("model", "x", "y", envir = globalenv()))
  targets::tar_script({
    list(
      targets::tar_target(cluster, tfdistr::local_cluster(2)),
      targets::tar_target(fit, tfdistr::distributed_fit(
        model, x, y, epochs = 2, seed = 1, verbose = 0, cluster = cluster
      )),
      targets::tar_target(predicted, predict(fit, x))
    )
  }, ask = FALSE)
  make <- function() targets::tar_make(callr_function = NULL, reporter = "silent")
  make()
  built <- targets::tar_meta(fields = "data")
  targets::tar_invalidate(c("cluster", "fit"))
  make()
  again <- targets::tar_meta(fields = "data")
  for (name in c("cluster", "fit")) {
    expect_identical(again$data[again$name == name], built$data[built$name == name], info = name)
  }
  progress <- targets::tar_progress()
  expect_identical(progress$progress[progress$name == "fit"], "built")
  expect_match(progress$progress[progress$name == "predicted"], "skip")
  expect_equal(predict(targets::tar_read(fit), x), targets::tar_read(predicted))
})

test_that("callr: a cluster goes to another session, whose result comes back", {
  skip_slow("loads TensorFlow in another session")
  skip_if_not_installed("callr")
  there <- callr::r(
    function(model, x, y, cluster, failures) {
      fit <- tfdistr::distributed_fit(
        model, x, y, epochs = 2, seed = 1, verbose = 0, cluster = cluster, failures = failures
      )
      list(fit = fit, predicted = predict(fit, x))
    },
    list(model, x, y, local_cluster(2, warm = FALSE), on_failure(step_timeout = 100)),
    env = c(callr::rcmd_safe_env(), RETICULATE_PYTHON = reticulate::py_config()$python)
  )
  expect_identical(there$fit$params$workers, 2L)
  expect_identical(predict(there$fit, x), there$predicted)
  expect_equal(there$predicted, predict(fit_here(), x), tolerance = 1e-5)
})

test_that("mirai and future: trials run in other sessions, as docs/tune.md shows", {
  skip_slow("loads TensorFlow in other sessions")
  for (package in c("mirai", "future")) skip_if_not(length(find.package(package, quiet = TRUE)) > 0L, package)
  lines <- document_lines("tune.md", "docs")
  lines <- lines[-seq_len(grep("^## mirai and future", lines))]
  by_mirai <- block(lines, "^```r")
  again <- grep("^cat", by_mirai, value = TRUE) # also of the second block, which prints nothing
  by_future <- block(lines[-seq_len(grep("^The same with future", lines))], "^```r")
  output <- printed(c(by_mirai, by_future, again), withr::local_tempdir())
  shown <- block(lines, "^```text")
  rows <- grep("^rate", output, value = TRUE)
  loss <- function(rows) as.numeric(sub(".* ", "", rows))
  expect_identical(sub("[^ ]*$", "", rows), rep(sub("[^ ]*$", "", shown), 2L))
  expect_lt(max(abs(loss(rows) - rep(loss(shown), 2L))), 0.05) # another processor rounds otherwise
})

# nolint end

test_that("Shiny: a server trains, and shows the result", {
  skip_if_not_installed("shiny")
  server <- function(input, output, session) {
    trained <- shiny::eventReactive(input$train, fit_here(batch_size = input$batch_size))
    output$loss <- shiny::renderText(sprintf("%.3f", trained()$metrics$loss))
    output$history <- shiny::renderPlot(plot(trained()))
    output$text <- shiny::renderPrint(trained())
  }
  shiny::testServer(server, {
    session$setInputs(batch_size = 16, train = 1)
    expect_identical(output$loss, sprintf("%.3f", fit_here(batch_size = 16)$metrics$loss))
    expect_match(output$text, "global batch 16")
    expect_match(output$history$src, "^data:image/png")
    session$setInputs(batch_size = 0, train = 2)
    expect_error(output$loss, "`batch_size` must be")
  })
})

test_that("Quarto and R Markdown: a chunk has the result and the plot, and no progress display", {
  skip_if_not_installed("knitr")
  withr::local_dir(withr::local_tempdir())
  lines <- c(
    "```{r}", "fit <- distributed_fit(model, x, y, epochs = 2, seed = 1)", "fit", "```",
    "```{r plot}", "plot(fit)", "```",
    "```{r, error = TRUE}", "distributed_fit(model, x, y, epochs = 0)", "```"
  )
  made <- knitr::knit(text = lines, quiet = TRUE, envir = list2env(list(model = model, x = x, y = y)))
  said <- strsplit(made, "\n")[[1L]]
  expect_identical(grep("^## ", said, value = TRUE)[1:2], c(
    "## Trained on 1 worker, 2 epochs, global batch 32, seed 1",
    sprintf("##   loss: %.4f", fit_here()$metrics$loss)
  ))
  expect_true(file.exists("figure/plot-1.png"))
  expect_match(made, "## Error in `distributed_fit\\(\\)`:\n## ! `epochs` must be")
  expect_match(made, "## . Fix: ")
})

test_that("RStudio: what its panes ask of a saved result does not make the model", {
  fit <- unserialize(serialize(fit_here(), NULL))
  expect_gt(utils::object.size(fit), 0)
  expect_output(utils::str(fit), "tfdistr_fit: List of 5")
  expect_identical(utils::.DollarNames(fit, "^r"), "run_dir")
  expect_identical(names(fit), c("history", "metrics", "params", "workers", "run_dir"))
  expect_length(fit, 5L)
  for (name in names(fit)) expect_identical(fit[[name]], getElement(fit, name))
  expect_output(print(fit), "Trained on")
  expect_true(reticulate::py_is_null_xptr(attr(fit, "session")$result))
})
