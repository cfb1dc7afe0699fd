# In Python: tests/python/test_testing.py, which has an example of each reason.

x <- matrix(sin(1:512), ncol = 8)
y <- rowSums(x)

network <- function(..., loss = "mse") {
  keras <- reticulate::import("keras")
  first <- keras$layers$Dense(4L, "relu", name = "first")
  layers <- list(keras$Input(list(8L)), first, ..., keras$layers$Dense(1L, name = "last"))
  model <- keras$Sequential(layers, name = "net")
  model$compile("adam", loss)
  model
}

plain <- function() network()

dropout <- function() network(reticulate::import("keras")$layers$Dropout(0.5, name = "drop"))

# What an expectation gives: its class and its lines.
said <- function(code) {
  result <- tryCatch(code, expectation = identity)
  list(class = class(result)[[1L]], lines = strsplit(conditionMessage(result), "\n")[[1L]])
}

# nolint start: object_usage_linter. The functions of testthat.
expect_reason <- function(code, ...) {
  failure <- said(code)
  expect_identical(failure$class, "expectation_failure")
  expect_identical(
    failure$lines[[1L]],
    "The fits on 1 and 2 workers differ by more than tolerance = 1e-06, and the outputs by 1e-05."
  )
  expect_match(failure$lines[[2L]], "^First difference: the (weight|variable) \"")
  expect_match(failure$lines[[3L]], "^Different: [0-9]+ of [0-9]+ weights, [0-9]+ of [0-9]+ variables of ")
  expect_match(failure$lines[[4L]], "^History: it parts in epoch 1: the metric \"loss\" is ")
  expect_identical(failure$lines[-(1:4)], c(...))
}
# nolint end

test_that("a model with the same fit succeeds, and its fits are returned", {
  kind <- NULL
  fits <- withCallingHandlers(
    expect_same_fit(plain, x, y, epochs = 2, batch_size = 16),
    expectation = function(result) kind <<- class(result)[[1L]] # nolint
  )
  expect_identical(kind, "expectation_success")
  expect_s3_class(fits[[2L]], "tfdistr_fit")
  expect_identical(vapply(fits, function(fit) fit$params$workers, 1L), 1:2)
  expect_identical(fits[[1L]]$params$seed, 1L)
  expect_length(fits[[2L]]$history$loss, 2L)
})

test_that("a layer that draws is the reason, and virtual workers are the fix", {
  expect_reason(
    expect_same_fit(dropout, x, y, validation_data = list(x, y)),
    "Reason: each worker draws its own random numbers in drop.",
    "Fix: Pass virtual_workers = 2: the numbers then do not depend on the number of workers."
  )
  skip_slow("two more trainings")
  fits <- expect_same_fit(dropout, x, y, virtual_workers = 2)
  expect_identical(fits[[1L]]$model$get_weights(), fits[[2L]]$model$get_weights())
})

test_that("without a known reason, trainings with traces show that rounding is one", {
  skip_slow("two more trainings")
  failure <- said(expect_same_fit(plain, x, y, tolerance = 1e-12, checkpoint_every = 1))
  expect_match(failure$lines[[5L]], "^Known: all 2 steps have the same losses and gradient norms")
  expect_match(failure$lines[[6L]], "^Likely reason: the order of a sum changes its rounding")
})

test_that("what no comparison can do is an error", {
  refused <- function(code, ...) {
    error <- expect_error(code, class = "tfdistr_error_argument")
    for (part in c(...)) expect_match(conditionMessage(error), part, fixed = TRUE)
  }
  refused(expect_same_fit(plain, x, y, 3), "Further arguments must be named.")
  refused(
    expect_same_fit(distributed_fit(plain, x, y, verbose = 0), x, y),
    "`model` must be a function that builds and compiles a model, or a compiled model.",
    "the model of the fit: fit$model."
  )
})
