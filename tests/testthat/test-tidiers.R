# The methods of broom, and other ways to look at a result.

model <- function() {
  keras <- reticulate::import("keras")
  model <- keras$Sequential(list(keras$layers$Dense(2L)))
  model$compile("sgd", "mse", metrics = list("mae"))
  model
}
x <- as.matrix(mtcars[c("wt", "drat")])
y <- as.matrix(mtcars[c("mpg", "qsec")]) / 20

# One fit for the tests that only look at it.
looked_at <- new.env()
some_fit <- function() {
  looked_at$fit <- looked_at$fit %||%
    distributed_fit(model, x, y, epochs = 3, validation_split = 0.25, validation_freq = 2, seed = 1)
  looked_at$fit
}

test_that("tidy(), glance(), augment() and nobs() give tables", {
  skip_if_not_installed("generics")
  fit <- some_fit()
  expect_identical(as.data.frame(generics::tidy(fit)), as.data.frame(fit))
  glance <- generics::glance(fit)
  expect_named(glance, c(
    "epochs", "loss", "mae", "val_loss", "val_mae", "nobs", "batch_size", "workers", "seed"
  ))
  expect_identical(dim(glance), c(1L, 9L))
  expect_identical(glance$loss, fit$metrics$loss)
  expect_identical(glance$val_loss, fit$history$val_loss) # of the second epoch
  expect_identical(nobs(fit), 24L)
  expect_identical(glance$nobs, 24L)
  outputs <- predict(fit, x)
  augmented <- generics::augment(fit, mtcars)
  expect_named(augmented, c(names(mtcars), ".pred_1", ".pred_2"))
  expect_identical(unname(as.matrix(augmented[c(".pred_1", ".pred_2")])), outputs)
  both <- function() {
    keras <- reticulate::import("keras")
    input <- keras$Input(list(2L))
    output <- function(name, units) keras$layers$Dense(units, name = name)(input)
    model <- keras$Model(input, list(one = output("one", 1L), two = output("two", 2L)))
    model$compile("sgd", "mse")
    model
  }
  of_both <- distributed_fit(both, x, list(one = y[, 1], two = y), seed = 1, verbose = 0)
  new <- mtcars[c("wt", "drat")]
  expect_named(generics::augment(of_both, new), c(names(new), ".pred_one", ".pred_two.1", ".pred_two.2"))
  batches <- function() reticulate::import("tensorflow")$data$Dataset$from_tensors(reticulate::tuple(x, y))
  expect_identical(nobs(distributed_fit(model, batches, seed = 1)), NA_integer_)
})

test_that("augment() of tfdistr_mlp() has its predictions", {
  for (package in c("generics", "hardhat")) skip_if_not_installed(package)
  fit <- tfdistr_mlp(Species ~ ., iris, epochs = 1, seed = 1, verbose = 0)
  expect_named(generics::augment(fit, iris), c(
    names(iris), ".pred_class", ".pred_setosa", ".pred_versicolor", ".pred_virginica"
  ))
  expect_identical(generics::augment(fit, iris)$.pred_class, predict(fit, iris)$.pred_class)
  expect_identical(c(nobs(fit), generics::glance(fit)$nobs), c(150L, 150L))
})

test_that("predict() has Keras's names of its arguments", {
  fit <- some_fit()
  expected <- predict(fit, x)
  expect_identical(predict(fit, x = x, verbose = 0), expected)
  expect_identical(predict(fit, newdata = x), expected)
  expect_identical(evaluate(fit, x, y, verbose = 0), evaluate(fit, x, y))
  expect_error(predict(fit), "Pass the inputs once, as `newdata` or as `x`")
})

test_that("elements are found by `[[`, also exactly and by their number, and by getElement()", {
  fit <- some_fit()
  expect_identical(fit[["history", exact = TRUE]], fit$history)
  expect_identical(getElement(fit, "history"), fit$history)
  expect_identical(getElement(fit, "model"), fit$model)
  expect_null(fit[["hist", exact = TRUE]])
  expect_identical(fit[["hist", exact = FALSE]], fit$history)
  expect_identical(fit[[1L]], fit$history)
  expect_identical(fit[[c("history", "loss")]], fit$history$loss)
  expect_identical(fit[["workers"]]$pid, Sys.getpid())
})

test_that("a model function that takes much along is named", {
  large <- numeric(1e5)
  unused <- numeric(1e6)
  small <- 1
  heavy <- function() small + sum(large)
  warned <- warnings_of(warn_of_size(2e8, heavy))
  expect_length(warned, 1L)
  expect_s3_class(warned[[1L]], "tfdistr_warning")
  expect_match(conditionMessage(warned[[1L]]), "takes 200 MB .* of which `large` has 1 MB")
  expect_silent(warn_of_size(9e7, heavy))
  saved <- warnings_of(save_fit(attr(some_fit(), "session")$result, heavy))
  expect_length(saved, 0L)
})
