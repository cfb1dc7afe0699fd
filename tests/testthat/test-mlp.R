# tfdistr_mlp(): a table in, predictions of tidymodels out.

skip_if_not_installed("hardhat")
withr::local_envvar(TZ = "UTC", .local_envir = teardown_env()) # lubridate calls timedatectl, which may warn

quiet_mlp <- function(...) tfdistr_mlp(..., epochs = 2, seed = 1, verbose = 0)

# One fit for the tests that only look at it.
looked_at <- new.env()
of_iris <- function() {
  looked_at$fit <- looked_at$fit %||% quiet_mlp(Species ~ ., iris, hidden_units = 4, metrics = "accuracy")
  looked_at$fit
}
data <- data.frame(y = seq(0, 1, length.out = 12), g = c("a", "b", "c"), x = 12:1)

test_that("a formula, a data frame, a matrix and a recipe train the same model", {
  fits <- list(of_iris(), quiet_mlp(iris[1:4], iris$Species, hidden_units = 4, metrics = "accuracy"))
  matrix <- as.matrix(iris[1:4])
  fits <- c(fits, list(quiet_mlp(unname(matrix), as.character(iris$Species), hidden_units = 4)))
  by_table <- quiet_mlp(mpg ~ wt, mtcars)
  expect_identical(predict(quiet_mlp(mpg ~ wt, as.matrix(mtcars)), mtcars), predict(by_table, mtcars))
  if (requireNamespace("recipes", quietly = TRUE)) {
    fits <- c(fits, list(quiet_mlp(recipes::recipe(Species ~ ., iris), iris, hidden_units = 4)))
  }
  expected <- predict(fits[[1L]], iris, "prob")
  for (fit in fits) {
    expect_s3_class(fit, c("tfdistr_mlp", "tfdistr_fit"), exact = TRUE)
    expect_s3_class(fit$blueprint, "hardhat_blueprint")
    new <- if (length(fit$blueprint$ptypes$predictors) && "x1" %in% names(fit$blueprint$ptypes$predictors)) {
      unname(matrix)
    } else {
      iris[4:1] # matched by name
    }
    expect_identical(predict(fit, new, "prob"), expected)
  }
})

test_that("callbacks with R code are made in each worker", {
  folder <- withr::local_tempdir()
  note <- function() {
    reticulate::import("keras")$callbacks$LambdaCallback(on_train_end = function(logs) {
      file.create(file.path(folder, worker_index()))
    })
  }
  quiet_mlp(mpg ~ wt, mtcars, cluster = local_cluster(2), callbacks = list(note()))
  expect_setequal(list.files(folder), c("0", "1"))
})

test_that("predictions of a classification have its levels", {
  fit <- of_iris()
  rows <- iris[c(1, 60, 140), ]
  probabilities <- predict(fit, rows, type = "prob")
  expect_named(probabilities, paste0(".pred_", levels(iris$Species)))
  outputs <- predict(fit, rows, type = "raw")
  expect_identical(unname(as.matrix(probabilities)), outputs)
  best <- levels(iris$Species)[max.col(outputs)]
  expect_identical(predict(fit, rows)$.pred_class, factor(best, levels(iris$Species)))
  two <- transform(mtcars, am = factor(am, labels = c("automatic", "manual")))
  fit <- quiet_mlp(am ~ wt + hp, two)
  manual <- predict(fit, two, "raw")[, 1L]
  expect_identical(predict(fit, two, "prob")$.pred_manual, manual)
  expect_identical(predict(fit, two)$.pred_class == "manual", manual > 0.5)
  # The loss of the targets that the levels stand for.
  truth <- two$am == "manual"
  expect_equal(evaluate(fit, two)$loss, -mean(log(ifelse(truth, manual, 1 - manual))), tolerance = 1e-5)
})

test_that("a regression predicts each outcome, and missing values where predictors are missing", {
  fit <- quiet_mlp(mpg + hp ~ wt + qsec, mtcars)
  new <- transform(mtcars[1:3, ], wt = c(2, NA, 3))
  expect_silent(predicted <- predict(fit, new))
  expect_named(predicted, c(".pred_mpg", ".pred_hp"))
  expect_identical(is.na(predicted$.pred_hp), c(FALSE, TRUE, FALSE))
  expect_named(predict(quiet_mlp(mtcars["wt"], mtcars$mpg), mtcars), ".pred")
  of_classes <- predict(of_iris(), transform(iris[1:2, ], Sepal.Width = c(NA, 3)))
  expect_identical(is.na(of_classes$.pred_class), c(TRUE, FALSE))
})

test_that("a saved result predicts the same", {
  fit <- of_iris()
  file <- withr::local_tempfile()
  saveRDS(fit, file)
  expect_identical(predict(readRDS(file), iris, "prob"), predict(fit, iris, "prob"))
})

# The model for some predictors, not trained.
built <- function(outcome, ..., hidden_units = 5, penalty = 0, dropout = 0, activation = "relu",
                  model = NULL) {
  design <- mlp_design(2L, data.frame(outcome), hidden_units, penalty, dropout, activation, model, NULL)
  mlp_model(design, list(...))()
}
shapes <- function(model) lapply(model$get_weights(), dim)

test_that("no hidden units are a regression, whose penalty is that of its weights", {
  model <- built(1:3, hidden_units = 0, penalty = 0.5)
  expect_identical(shapes(model), list(c(2L, 1L), 1L))
  expect_equal(as.numeric(model$layers[[1L]]$kernel_regularizer$l2), 0.5)
  expect_identical(model$loss, "mse")
  model <- built(factor(1:3), hidden_units = c(3, 2), activation = c("relu", "tanh"), dropout = 0.25)
  expect_identical(shapes(model), list(c(2L, 3L), 3L, c(3L, 2L), 2L, c(2L, 3L), 3L))
  expect_identical(
    vapply(model$layers, function(layer) sub(".*[.]", "", class(layer)[[1L]]), ""),
    c("Dense", "Dropout", "Dense", "Dropout", "Dense")
  )
  expect_identical(model$layers[[3L]]$activation$`__name__`, "tanh")
})

test_that("`model` makes another architecture, and an optimizer serves several models", {
  keras <- reticulate::import("keras")
  wide <- function(input, outputs, units, dropout) {
    keras <- reticulate::import("keras")
    dense <- keras$layers$Dense
    layers <- list(dense(units), keras$layers$Dropout(dropout), dense(outputs, "softmax"))
    keras$Sequential(c(keras$Input(list(input)), layers))
  }
  optimizer <- keras$optimizers$SGD(0.125)
  for (again in 1:2) {
    model <- built(factor(1:3), model = wide, hidden_units = 7, dropout = 0.5, optimizer = optimizer)
    expect_identical(shapes(model), list(c(2L, 7L), 7L, c(7L, 3L), 3L))
    expect_identical(as.numeric(model$optimizer$learning_rate$numpy()), 0.125)
    model$optimizer$build(model$trainable_variables)
  }
  expect_false(optimizer$built)
  compiled <- function(input, outputs) {
    model <- wide(input, outputs, 2L, 0)
    model$compile("adagrad", "mae")
    model
  }
  expect_identical(built(1:3, model = compiled, loss = "mse")$loss, "mae")
  expect_error(
    quiet_mlp(Species ~ ., iris, model = function(input) wide(input, 2L, 1L, 0)),
    class = "tfdistr_error_argument", "`model` must return a Keras model with 3 outputs"
  )
})

test_that("weights of rows and of levels change the loss", {
  only_setosa <- as.numeric(iris$Species == "setosa")
  fit <- quiet_mlp(Species ~ ., iris, sample_weight = only_setosa, optimizer = "sgd")
  same <- quiet_mlp(
    Species ~ ., iris, class_weight = c(virginica = 0, setosa = 1, versicolor = 0), optimizer = "sgd"
  )
  expect_equal(fit$history$loss, same$history$loss, tolerance = 1e-6)
  weights <- hardhat::importance_weights(only_setosa)
  same <- quiet_mlp(Species ~ ., iris, sample_weight = weights, optimizer = "sgd")
  expect_identical(same$history, fit$history)
  skip_if_not_installed("recipes")
  data <- transform(iris, weight = weights)
  same <- quiet_mlp(recipes::recipe(Species ~ ., data), data, optimizer = "sgd")
  expect_identical(same$history, fit$history)
})

test_that("wrong data and arguments are refused before the training", {
  refused <- function(code) {
    error <- expect_error(code, class = "tfdistr_error_argument")
    expect_identical(as.character(conditionCall(error)[[1L]]), as.character(substitute(code)[[1L]]))
    cat(conditionMessage(error), "\n\n")
  }
  fit <- quiet_mlp(y ~ g + x, data)
  lists <- transform(data, x = I(as.list(x)))
  expect_snapshot({
    refused(tfdistr_mlp(1:3))
    refused(predict(fit, data.frame(g = c("a", "d", "e"), x = 1)))
    refused(evaluate(of_iris(), transform(iris, Species = "rose")))
    refused(tfdistr_mlp(y ~ ., lists))
    refused(tfdistr_mlp(lists["x"], data$y))
    refused(predict(fit, lists))
    refused(tfdistr_mlp(data["g"], data$y))
    refused(tfdistr_mlp(data.frame(day = Sys.Date() + 1:12), data$y))
    refused(tfdistr_mlp(y ~ x, data[0, ]))
    refused(tfdistr_mlp(data["x"], data.frame(a = factor(1:12), b = 1)))
    refused(tfdistr_mlp(data["x"], data$y > 0.5))
    refused(tfdistr_mlp(data["x"], replace(data$y, 3, NA)))
    refused(tfdistr_mlp(data["x"], factor(rep("a", 12))))
    refused(tfdistr_mlp(as.matrix(data["x"]), data$y > 0.5))
    refused(tfdistr_mlp(y ~ offset(x), data))
    refused(tfdistr_mlp(y ~ x, data, sample_weight = 1:3))
    refused(tfdistr_mlp(y ~ x, data, sample_weight = c(NA, 2:12)))
    refused(tfdistr_mlp(y ~ x, data, sample_weight = letters[1:12]))
    refused(tfdistr_mlp(y ~ x, data, weights = 1:12))
    refused(tfdistr_mlp(y ~ x, data, workers = 2))
    refused(tfdistr_mlp(y ~ x, data, validation_data = data))
    refused(tfdistr_mlp(y ~ x, data, epochs = 0))
    refused(tfdistr_mlp(y ~ x, data, epohcs = 3))
    refused(tfdistr_mlp(y ~ x, data, hidden_units = 2.5))
    refused(tfdistr_mlp(y ~ x, data, penalty = -1))
    refused(tfdistr_mlp(y ~ x, data, dropout = 1))
    refused(tfdistr_mlp(y ~ x, data, activation = "rule"))
    refused(tfdistr_mlp(y ~ x, data, model = "mlp"))
    refused(tfdistr_mlp(Species ~ ., iris, class_weight = c(rose = 2)))
    refused(tfdistr_mlp(y ~ x, data, class_weight = c(2, 1)))
    refused(predict(fit, data, type = "prob"))
    refused(predict(fit, newdata = data))
    refused(predict(fit, data[0, ]))
    refused(evaluate(of_iris(), transform(iris, Species = replace(Species, 1, NA))))
  })
})

test_that("errors of hardhat name the call of the user", {
  called <- function(code, name) {
    error <- expect_error(code, class = "rlang_error")
    expect_identical(as.character(conditionCall(error)[[1L]]), name)
  }
  called(tfdistr_mlp(y ~ z, data), "tfdistr_mlp")
  called(tfdistr_mlp(y ~ x, as.list(data)), "tfdistr_mlp")
  fit <- quiet_mlp(y ~ x, data)
  called(predict(fit, data["g"]), "predict")
  called(evaluate(fit, data["x"]), "evaluate")
})

test_that("an error of the user's function keeps its call, and a preemption its status", {
  own <- function(...) rlang::abort("mine")
  error <- expect_error(quiet_mlp(y ~ x, data, model = own), "mine", class = "rlang_error")
  expect_false(identical(conditionCall(error)[[1L]], quote(tfdistr_mlp)))
  stopped <- function() abort("job_stopped", "Preempted.")
  error <- expect_error(with_call(stopped(), environment()), class = "tfdistr_error_job_stopped")
  expect_identical(conditionCall(error), quote(stopped()))
})

test_that("an ordered factor is a predictor, and an outcome", {
  sizes <- transform(data, g = factor(g, c("c", "a", "b"), ordered = TRUE))
  fit <- quiet_mlp(y ~ g + x, sizes)
  expect_identical(predict(fit, transform(sizes, g = as.character(g))), predict(fit, sizes))
  fit <- quiet_mlp(g ~ x, sizes)
  expect_identical(levels(predict(fit, sizes)$.pred_class), levels(sizes$g))
  expect_identical(evaluate(fit, transform(sizes, g = factor(g, c("a", "b", "c")))), evaluate(fit, sizes))
})

test_that("a recipe that returns no rows is refused", {
  skip_if_not_installed("recipes")
  recipe <- recipes::step_filter(recipes::recipe(y ~ x, data), x > 100)
  expect_error(tfdistr_mlp(recipe, data), "must have rows to train on", class = "tfdistr_error_argument")
})

test_that("the activations are those of Keras", {
  keras <- reticulate::import("keras")
  for (name in activations) expect_true(is.function(keras$activations$get(name)), info = name)
})
