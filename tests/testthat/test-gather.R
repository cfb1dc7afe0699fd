# Losses over the batch in R, and the warning about those that do not gather.

# The spread of the outputs over the rows of a batch, `gathers` or not.
spread_model <- function(gathers) {
  force(gathers)
  function() {
    keras <- reticulate::import("keras")
    spread <- function(y_true, y_pred) {
      rows <- if (gathers) tfdistr::gather(y_pred) else y_pred
      keras$ops$mean(keras$ops$square(rows - keras$ops$mean(rows, axis = 0L))) +
        keras$ops$mean(keras$ops$square(y_pred))
    }
    layers <- list(keras$Input(c(8L, 8L, 1L)), keras$layers$Flatten(), keras$layers$Dense(3L))
    model <- keras$Sequential(layers)
    model$compile("sgd", spread)
    model
  }
}

fit_spread <- function(gathers, workers) {
  digits <- some_digits() # nolint: object_usage_linter. A helper.
  distributed_fit(
    spread_model(gathers), digits$x[1:70, , , , drop = FALSE], digits$y[1:70],
    cluster = local_cluster(workers), epochs = 2, seed = 1, verbose = 0
  )
}

test_that("an R loss over the batch is that of one worker, also if it does not gather", {
  for (gathers in c(TRUE, FALSE)) {
    fits <- lapply(1:2, function(workers) fit_spread(gathers, workers))
    expect_lt(difference(fits[[1L]]$model, fits[[2L]]$model), 1e-6)
    expect_equal(fits[[1L]]$history, fits[[2L]]$history, tolerance = 1e-6)
  }
  expect_length(fits[[2L]]$params$differences, 0L)
})

# An R function as a layer that uses several rows at once, or as a metric of the whole batch.
fit_function <- function(workers, layer = NULL, metric = NULL) {
  digits <- some_digits() # nolint: object_usage_linter. A helper.
  model <- function() {
    keras <- reticulate::import("keras")
    layers <- list(keras$Input(c(8L, 8L, 1L)), keras$layers$Flatten(), keras$layers$Dense(1L))
    if (!is.null(layer)) {
      layers <- c(layers, keras$layers$Lambda(layer, name = "centred"))
    }
    model <- keras$Sequential(layers)
    model$compile("sgd", "mse", metrics = if (!is.null(metric)) list(metric))
    model
  }
  distributed_fit(
    model, digits$x[1:64, , , , drop = FALSE], as.numeric(digits$y[1:64]),
    cluster = local_cluster(workers), epochs = 2, seed = 1, verbose = 0
  )
}

test_that("a layer that uses several rows at once is named by a warning of a class of its own", {
  centred <- function(inputs) {
    keras <- reticulate::import("keras")
    inputs - keras$ops$mean(inputs, axis = 0L)
  }
  given <- warnings_of(fit <- fit_function(2L, layer = centred))
  expect_length(given, 1L)
  expect_identical(
    class(given[[1L]])[1:3], c("tfdistr_warning_batch_loss", "tfdistr_warning", "warning")
  )
  expect_match(conditionMessage(given[[1L]]), "the layer 'centred' uses several rows of a batch at once")
  expect_match(conditionMessage(given[[1L]]), "gather()", fixed = TRUE)
  expect_match(fit$params$differences, "the layer 'centred' uses several rows")
  expect_no_warning(
    suppressWarnings(fit_function(2L, layer = centred), classes = "tfdistr_warning_batch_loss")
  )
})

test_that("an R metric of the whole batch is that of one worker", {
  worst <- function(y_true, y_pred) {
    keras <- reticulate::import("keras")
    keras$ops$max(keras$ops$abs(y_true - y_pred))
  }
  expect_no_warning(fits <- lapply(1:2, function(workers) fit_function(workers, metric = worst)))
  expect_equal(fits[[1L]]$history, fits[[2L]]$history, tolerance = 1e-5)
})
