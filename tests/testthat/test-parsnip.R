# The engine "tfdistr" of parsnip, with the packages of tidymodels that are here.

skip_if_not_installed("parsnip")
withr::local_envvar(TZ = "UTC", .local_envir = teardown_env()) # lubridate calls timedatectl, which may warn

engine <- function(spec, ...) parsnip::set_engine(spec, "tfdistr", seed = 1, verbose = 0, ...)
of_classes <- engine(parsnip::mlp("classification", hidden_units = 4, epochs = 2))

# A workflow whose recipe has a step that learns from the training.
normalized <- function(spec = of_classes) {
  for (package in c("recipes", "workflows")) testthat::skip_if_not_installed(package)
  recipe <- recipes::step_normalize(recipes::recipe(Species ~ ., iris), recipes::all_numeric_predictors())
  workflows::workflow(recipe, spec)
}

test_that("four models of parsnip have the engine, whichever package is loaded first", {
  models <- c("mlp", "linear_reg", "logistic_reg", "multinom_reg")
  for (model in models) expect_true("tfdistr" %in% parsnip::show_engines(model)$engine, info = model)
  code <- "cat('tfdistr' %in% parsnip::show_engines('mlp')$engine, '\n')"
  for (first in c("parsnip", "tfdistr")) {
    load <- sprintf("loadNamespace('%s')", c(first, "tfdistr", "parsnip"))
    file <- withr::local_tempfile(lines = c(load, code))
    script <- start_script(file, env = c(R_LIBS = paste(.libPaths(), collapse = ":"))) # nolint: object_usage.
    script$process$wait(60000)
    expect_match(script$output(), "TRUE", info = first)
  }
})

test_that("classes, probabilities and outputs are those of tfdistr_mlp()", {
  fit <- parsnip::fit(of_classes, Species ~ ., iris)
  same <- tfdistr_mlp(Species ~ ., iris, hidden_units = 4, epochs = 2, seed = 1, verbose = 0)
  for (type in c("class", "prob")) {
    expect_identical(predict(fit, iris, type = type), predict(same, iris, type), info = type)
  }
  expect_identical(predict(fit, iris, type = "raw"), predict(same, iris, "raw"))
  expect_named(parsnip::augment(fit, iris[1:2, ]), c(
    names(iris), ".pred_class", paste0(".pred_", levels(iris$Species))
  ), ignore.order = TRUE)
  expect_s3_class(parsnip::extract_fit_engine(fit), "tfdistr_mlp")
})

test_that("regressions have no hidden layer, and may have several outcomes", {
  layers <- function(fit) length(parsnip::extract_fit_engine(fit)$model$layers)
  linear <- parsnip::fit(engine(parsnip::linear_reg(penalty = 0.01), epochs = 2), mpg ~ ., mtcars)
  expect_identical(layers(linear), 1L)
  expect_named(predict(linear, mtcars), ".pred")
  two <- transform(mtcars, am = factor(am))
  logistic <- parsnip::fit(engine(parsnip::logistic_reg(), optimizer = "sgd", epochs = 2), am ~ wt, two)
  expect_identical(layers(logistic), 1L)
  expect_equal(rowSums(predict(logistic, two, type = "prob")), rep(1, 32), tolerance = 1e-6)
  multinomial <- parsnip::fit(engine(parsnip::multinom_reg(), epochs = 2), Species ~ ., iris)
  expect_identical(layers(multinomial), 1L)
  expect_identical(levels(predict(multinomial, iris)$.pred_class), levels(iris$Species))
  several <- parsnip::fit(engine(parsnip::mlp("regression", epochs = 2)), cbind(mpg, hp) ~ wt, mtcars)
  expect_named(predict(several, mtcars), c(".pred_mpg", ".pred_hp"))
})

test_that("one line changes the place of the training", {
  here <- parsnip::fit(of_classes, Species ~ ., iris)
  there <- engine(of_classes, cluster = local_cluster(2))
  workers <- parsnip::fit(there, Species ~ ., iris)
  expect_identical(parsnip::extract_fit_engine(workers)$params$workers, 2L)
  expect_equal(predict(workers, iris, type = "prob"), predict(here, iris, type = "prob"), tolerance = 1e-5)
})

test_that("an architecture of one's own and an activation are arguments of the engine", {
  model <- function(input, outputs, units) {
    keras <- reticulate::import("keras")
    dense <- keras$layers$Dense
    keras$Sequential(list(keras$Input(list(input)), dense(units), dense(units), dense(outputs, "softmax")))
  }
  fit <- parsnip::fit(engine(of_classes, model = model), Species ~ ., iris)
  expect_length(parsnip::extract_fit_engine(fit)$model$layers, 3L)
  skip_if_not_installed("parsnip", "1.2.0") # earlier ones have activations for their own engines only
  spec <- engine(parsnip::mlp("classification", activation = "tanh", epochs = 1))
  layer <- parsnip::extract_fit_engine(parsnip::fit(spec, Species ~ ., iris))$model$layers[[1L]]
  expect_identical(layer$activation$`__name__`, "tanh")
})

test_that("a workflow is trained, saved, bundled, and refuses what the engine refuses", {
  fit <- parsnip::fit(normalized(), iris)
  expected <- predict(fit, iris, type = "prob")
  file <- withr::local_tempfile()
  saveRDS(fit, file)
  expect_identical(predict(readRDS(file), iris, type = "prob"), expected)
  if (requireNamespace("bundle", quietly = TRUE)) {
    saveRDS(bundle::bundle(fit), file)
    expect_identical(predict(bundle::unbundle(readRDS(file)), iris, type = "prob"), expected)
  }
  expect_error(
    parsnip::fit(engine(of_classes, epohcs = 3), Species ~ ., iris),
    "no argument `epohcs`", class = "tfdistr_error_argument"
  )
  recipe <- recipes::step_filter(recipes::recipe(Species ~ ., iris), Sepal.Length > 100)
  expect_error(
    parsnip::fit(workflows::workflow(recipe, of_classes), iris),
    "must have rows to train on", class = "tfdistr_error_argument"
  )
})

test_that("case weights of a workflow are the weights of rows", {
  skip_if_not_installed("workflows")
  weights <- as.numeric(iris$Species == "setosa")
  data <- transform(iris, weight = hardhat::importance_weights(weights))
  workflow <- workflows::add_case_weights(workflows::workflow(Species ~ ., of_classes), weight)
  fit <- parsnip::extract_fit_engine(parsnip::fit(workflow, data))
  same <- parsnip::fit(engine(of_classes, sample_weight = weights), Species ~ ., iris)
  expect_equal(fit$history, parsnip::extract_fit_engine(same)$history, tolerance = 1e-6)
})

test_that("a grid is tuned, and the last fit is tested", {
  skip_slow("trains seven models") # nolint: object_usage_linter.
  skip_if_not_installed("tune")
  skip_if_not_installed("rsample")
  skip_if_not_installed("yardstick")
  spec <- parsnip::set_engine(
    parsnip::mlp("classification", hidden_units = tune::tune(), epochs = 1), "tfdistr",
    verbose = 0
  )
  withr::local_seed(1)
  split <- rsample::initial_split(iris, strata = "Species")
  folds <- rsample::vfold_cv(rsample::training(split), 2)
  tuned <- tune::tune_grid(normalized(spec), folds, grid = data.frame(hidden_units = c(2L, 4L)))
  metrics <- tune::collect_metrics(tuned)
  expect_identical(sort(unique(metrics$hidden_units)), c(2L, 4L))
  expect_identical(unique(metrics$n), 2L)
  last <- tune::last_fit(tune::finalize_workflow(normalized(spec), data.frame(hidden_units = 4L)), split)
  expect_true(all(is.finite(tune::collect_metrics(last)$.estimate)))
  expect_identical(nrow(tune::collect_predictions(last)), nrow(rsample::testing(split)))
})
