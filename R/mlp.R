# A multilayer perceptron for a table, in the form of tidymodels. R/mlp_model.R builds it, R/parsnip.R makes
# it an engine of parsnip.

#' Fit a multilayer perceptron to a table
#'
#' Builds a Keras model for the columns of a table, and trains it by [distributed_fit()]. The result keeps the
#' blueprint of the package hardhat: later data is prepared in the same way, and predictions have the levels
#' and names of the outcomes. The same function is the engine "tfdistr" of parsnip, for `mlp()`,
#' `linear_reg()`, `logistic_reg()` and `multinom_reg()`. See `vignette("tidymodels")`.
#'
#' @param x Predictors: a data frame or matrix of numbers; a formula, such as `Species ~ .` or
#'   `mpg + hp ~ wt`, which makes indicators of factors, and has no `offset()`; or a recipe of the package
#'   recipes.
#' @param y Outcomes: a factor or a character vector to classify; a numeric vector, or a matrix or data frame
#'   of several columns, for a regression.
#' @param formula The formula.
#' @param data Data frame or matrix: the data of the formula or of the recipe.
#' @param object A result of `tfdistr_mlp()`.
#' @param new_data Data frame or matrix with the predictors.
#' @param type String: "class", "prob" or "raw" after a classification, "numeric" or "raw" after a regression;
#'   by default the first of them.
#' @param ... The arguments below; those of Keras's `compile()` (`optimizer`, `loss`, `metrics`,
#'   `loss_weights`, `weighted_metrics`, `run_eagerly`, `steps_per_execution`, `jit_compile`) and of
#'   [distributed_fit()], such as `batch_size`, `validation_split`, `seed` and `cluster`. By default the
#'   optimizer is "adam", and the loss is cross-entropy, or "mse" for a regression. For `predict()` and
#'   `evaluate()`, those of [predict.tfdistr_fit()] and [evaluate()].
#' @return `tfdistr_mlp()`: a result as of [distributed_fit()], of class `tfdistr_mlp`, with the element
#'   `blueprint`. `predict()`: a data frame (a tibble) with a row for each row of `new_data`: `.pred_class`, a
#'   factor; `.pred_<level>` for each level; or `.pred`, for several outcomes `.pred_<outcome>`. Rows with
#'   missing predictors have missing predictions. "raw" is the matrix of the model's outputs.
#' @section Arguments of all methods:
#'   * `hidden_units`: whole numbers: the units of each hidden layer, by default 5. 0 for no hidden
#'     layer, which is a linear, logistic or multinomial regression.
#'   * `penalty`: number: the L2 penalty of the weights of hidden layers, or of the outputs if there are
#'     none; by default 0.
#'   * `dropout`: number from 0, and less than 1: the share of units that is dropped after each hidden layer,
#'     by default 0.
#'   * `epochs`: number of epochs, by default 20.
#'   * `activation`: string: the activation of hidden layers, by Keras's name, or one for each layer; by
#'     default "softmax", as in parsnip.
#'   * `model`: function for another architecture: `function(input, outputs, units)` returns a Keras model.
#'     It gets the number of predictors, the number of outputs, and `hidden_units`; also `penalty`, `dropout`
#'     and `activation`, if it has arguments of these names. The outputs of a classification are
#'     probabilities: of the second level for two levels, otherwise of each level. A model that is not
#'     compiled is compiled with the arguments of `compile()`. By default, the model has `hidden_units`.
#'   * `sample_weight`: numeric vector, or case weights of hardhat: the weight in the loss of each row. By
#'     default, the case weights of a recipe.
#'   * `class_weight`: named numeric vector: the weight in the loss of each level, by its name.
#'
#' @section Errors: `tfdistr_error_argument` if an argument is not of that form, or has a name that is not
#'   known; if the predictors are not numbers, the outcomes have missing values or there are no rows; if
#'   `new_data` has a level that the training did not have. Those of [distributed_fit()], and of hardhat if a
#'   column is missing.
#' @examplesIf (interactive() || nzchar(Sys.getenv("NOT_CRAN"))) && rlang::is_installed("hardhat")
#' fit <- tfdistr_mlp(Species ~ ., iris, hidden_units = 8, activation = "relu", epochs = 5, seed = 1)
#' head(predict(fit, iris))
#' head(predict(fit, iris, type = "prob"))
#' evaluate(fit, iris)
#' @seealso [distributed_fit()]
#' @export
tfdistr_mlp <- function(x, ...) {
  rlang::check_installed("hardhat", "to prepare the data of tfdistr_mlp().")
  UseMethod("tfdistr_mlp")
}

#' @export
tfdistr_mlp.default <- function(x, ...) {
  abort(
    "argument", "`x` must be a formula, a data frame, a matrix or a recipe.",
    received = paste("an object of class", class(x)[[1L]]),
    fix = "Write tfdistr_mlp(Species ~ ., iris), for example."
  )
}

#' @rdname tfdistr_mlp
#' @export
tfdistr_mlp.data.frame <- function(x, y, ...) { # nolint: object_name_linter.
  fit_columns(x, y, ...)
}

#' @rdname tfdistr_mlp
#' @export
tfdistr_mlp.matrix <- function(x, y, ...) {
  fit_columns(as_columns(x), y, ...)
}

fit_columns <- function(x, y, ..., call = rlang::caller_env()) {
  check_rows(x, call)
  check_numbers(x, "x", call)
  fit_mlp(hardhat::mold(x, as_outcomes(y, call)), ..., call = call)
}

#' @rdname tfdistr_mlp
#' @export
tfdistr_mlp.formula <- function(formula, data, ...) {
  used <- all.vars(formula)
  if (is.matrix(data)) data <- as_columns(data)
  check_rows(data, call = rlang::current_env())
  check_lists(if ("." %in% used) data else data[names(data) %in% used], "data")
  blueprint <- hardhat::default_formula_blueprint(indicators = "traditional", intercept = FALSE)
  molded <- with_call(
    hardhat::mold(formula, factors_of(data), blueprint = blueprint), rlang::current_env(), "rlang_error"
  )
  if (length(molded$extras$offset)) {
    abort(
      "argument", "`formula` must have no offset().", received = deparse1(formula),
      fix = "Make it a predictor, or subtract it from the outcome and add it to the predictions."
    )
  }
  fit_mlp(molded, ...)
}

#' @rdname tfdistr_mlp
#' @rawNamespace S3method(tfdistr_mlp, recipe)
tfdistr_mlp.recipe <- function(x, data, ...) {
  molded <- with_call(hardhat::mold(x, data), rlang::current_env(), "rlang_error")
  check_rows(molded$predictors, call = rlang::current_env())
  check_numbers(molded$predictors, "the predictors of the recipe")
  fit_mlp(molded, ...)
}

# Trains on what hardhat has molded.
fit_mlp <- function(molded, ..., hidden_units = 5, penalty = 0, dropout = 0, epochs = 20,
                    activation = "softmax", model = NULL, sample_weight = NULL, class_weight = NULL,
                    call = rlang::caller_env()) {
  given <- mlp_arguments(..., call = call)
  check_outcomes(molded$outcomes, call)
  design <- mlp_design(
    ncol(molded$predictors), molded$outcomes, hidden_units, penalty, dropout, activation, model,
    call = call
  )
  sample_weight <- sample_weight %||% molded$extras$roles$case_weights[[1L]]
  if (hardhat::is_case_weights(sample_weight)) sample_weight <- as.numeric(sample_weight)
  class_weight <- weights_by_number(class_weight, levels_of(molded$outcomes), call)
  fit <- with_call(call = call, rlang::inject(distributed_fit(
    mlp_model(design, given$compile), as.matrix(molded$predictors), mlp_targets(molded$outcomes),
    epochs = epochs, sample_weight = sample_weight, class_weight = class_weight, !!!given$fit
  )))
  fit$blueprint <- molded$blueprint
  class(fit) <- c("tfdistr_mlp", class(fit))
  fit
}

# The arguments of tfdistr_mlp() beyond its own: those of compile(), and those of distributed_fit().
mlp_arguments <- function(..., call) {
  own <- setdiff(names(formals(fit_mlp)), c("molded", "...", "call"))
  of_compile <- c(
    "optimizer", "loss", "metrics", "loss_weights", "weighted_metrics", "run_eagerly", "steps_per_execution",
    "jit_compile"
  )
  of_fit <- setdiff(names(formals(distributed_fit)), c(own, "x", "y", "...", "validation_data"))
  dots <- named_dots(..., call = call)
  unknown <- setdiff(names(dots), c(of_compile, of_fit))
  if (length(unknown)) {
    known <- as.list(c(own, of_compile, of_fit))
    with_conditions(call = call, core()$refuse_unknown("tfdistr_mlp", unknown[[1L]], known))
  }
  list(compile = dots[names(dots) %in% of_compile], fit = dots[names(dots) %in% of_fit])
}

#' @rdname tfdistr_mlp
#' @export
predict.tfdistr_mlp <- function(object, new_data, type = NULL, ...) {
  if (missing(new_data)) {
    abort(
      "argument", "Pass the predictors as `new_data`.",
      received = if (...length()) toString(...names()) else "no data", fix = "Write predict(fit, new_data)."
    )
  }
  outcomes <- object$blueprint$ptypes$outcomes
  types <- c(if (is.null(levels_of(outcomes))) "numeric" else c("class", "prob"), "raw")
  type <- type %||% types[[1L]]
  if (!rlang::is_string(type, types)) {
    abort(
      "argument", sprintf("`type` must be one of %s for this model.", toString(dQuote(types, FALSE))),
      received = deparse1(type), fix = sprintf("Pass type = \"%s\", for example.", types[[1L]])
    )
  }
  predictors <- forged(object, new_data)$predictors
  outputs <- with_call(predict.tfdistr_fit(object, predictors, ...), rlang::current_env())
  if (type == "raw") outputs else predictions(outputs, outcomes, type)
}

#' @export
evaluate.tfdistr_mlp <- function(object, new_data, ...) { # nolint: object_name_linter.
  data <- forged(object, new_data, outcomes = TRUE)
  check_outcomes(data$outcomes, rlang::current_env())
  with_call(
    evaluate.tfdistr_fit(object, data$predictors, mlp_targets(data$outcomes), ...), rlang::current_env()
  )
}

# New data as the training had it: predictors as a matrix, and outcomes.
forged <- function(object, new_data, outcomes = FALSE, call = rlang::caller_env()) {
  if (is.matrix(new_data)) new_data <- as_columns(new_data)
  ptypes <- object$blueprint$ptypes
  known <- c(ptypes$predictors, if (outcomes) ptypes$outcomes)
  if (is.data.frame(new_data)) {
    used <- intersect(names(known), names(new_data))
    check_lists(new_data[used], "new_data", call)
    for (name in Filter(function(name) is.factor(known[[name]]), used)) {
      of <- paste0("new_data$", name)
      new_data[[name]] <- with_levels(new_data[[name]], known[[name]], of, call)
    }
  }
  data <- with_call(hardhat::forge(new_data, object$blueprint, outcomes = outcomes), call, "rlang_error")
  predictors <- as.matrix(data$predictors)
  predictors[is.na(predictors)] <- NaN # their predictions are missing
  data$predictors <- predictors
  data
}
