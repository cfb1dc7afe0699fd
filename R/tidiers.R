# The methods of broom for results of distributed_fit().

#' Tidy a result
#'
#' Methods of the generic functions of the packages generics, broom and stats. Attach broom, tidymodels or
#' generics to call them without a prefix.
#'
#' * `tidy()`: give the history: one row for each epoch and metric, as `as.data.frame()` does.
#' * `glance()`: give one row: the metrics after the last epoch, and what was trained.
#' * `augment()`: add the predictions to data.
#' * `nobs()`: give the number of examples of the training.
#'
#' @param x,object A result of [distributed_fit()] or [tfdistr_mlp()].
#' @param new_data Data frame: inputs as for `predict()`.
#' @param ... For `augment()`, arguments of [predict.tfdistr_fit()]; else not used.
#' @return Tibbles, or data frames where the package tibble is not installed. `glance()`: the columns
#'   `epochs`, a column for each metric, `nobs`, `batch_size` (`NA` if the data gave batches), `workers` and
#'   `seed`.
#'   `augment()`: `new_data` with the column `.pred`, or `.pred_1`, `.pred_2` and so on for each output, with
#'   its name if it has one; after [tfdistr_mlp()], with the columns of its predictions, and of its
#'   probabilities. `nobs()`: an integer, without the examples of `validation_split`; `NA` if the data does
#'   not say it.
#' @examplesIf (interactive() || nzchar(Sys.getenv("NOT_CRAN"))) && rlang::is_installed("generics")
#' model <- function() {
#'   keras <- reticulate::import("keras")
#'   model <- keras$Sequential(list(keras$layers$Dense(1L)))
#'   model$compile("sgd", "mse")
#'   model
#' }
#' fit <- distributed_fit(model, mtcars[c("wt", "qsec")], mtcars$mpg / 20, epochs = 2, seed = 1)
#' generics::tidy(fit)
#' generics::glance(fit)
#' head(generics::augment(fit, mtcars[c("wt", "qsec")]))
#' nobs(fit)
#' @name tidy.tfdistr_fit
NULL

#' @rdname tidy.tfdistr_fit
#' @rawNamespace S3method(generics::tidy, tfdistr_fit)
tidy.tfdistr_fit <- function(x, ...) { # nolint: object_name_linter.
  as_tibble(as.data.frame(x))
}

#' @rdname tidy.tfdistr_fit
#' @rawNamespace S3method(generics::glance, tfdistr_fit)
glance.tfdistr_fit <- function(x, ...) { # nolint: object_name_linter.
  history <- frame_of(parts_of(x)$wide)
  last <- history[nrow(history), setdiff(names(history), "epoch"), drop = FALSE]
  # A validation that the last epoch did not have counts from the epoch before.
  last[] <- lapply(names(last), function(name) utils::tail(c(NA_real_, stats::na.omit(history[[name]])), 1L))
  of <- x$params
  as_tibble(data.frame(
    epochs = of$epochs, last, nobs = stats::nobs(x), batch_size = of$batch_size %||% NA_integer_,
    workers = of$workers, seed = of$seed,
    row.names = NULL, check.names = FALSE
  ))
}

#' @rdname tidy.tfdistr_fit
#' @rawNamespace S3method(generics::augment, tfdistr_fit)
augment.tfdistr_fit <- function(x, new_data, ...) { # nolint: object_name_linter.
  outputs <- stats::predict(x, new_data, ...)
  predicted <- as.data.frame(outputs)
  named <- !is.null(if (is.list(outputs)) names(outputs) else colnames(outputs))
  of <- if (named) names(predicted) else seq_along(predicted)
  names(predicted) <- if (length(predicted) == 1L) ".pred" else paste0(".pred_", of)
  as_tibble(data.frame(new_data, predicted, check.names = FALSE))
}

#' @rdname tidy.tfdistr_fit
#' @rawNamespace S3method(generics::augment, tfdistr_mlp)
augment.tfdistr_mlp <- function(x, new_data, ...) { # nolint: object_name_linter.
  types <- if (is.null(levels_of(x$blueprint$ptypes$outcomes))) "numeric" else c("class", "prob")
  predicted <- lapply(types, function(type) stats::predict(x, new_data, type = type, ...))
  as_tibble(data.frame(new_data, predicted, check.names = FALSE))
}

#' @rdname tidy.tfdistr_fit
#' @rawNamespace S3method(stats::nobs, tfdistr_fit)
nobs.tfdistr_fit <- function(object, ...) { # nolint: object_name_linter.
  parts_of(object)$examples %||% NA_integer_
}

as_tibble <- function(frame) {
  if (requireNamespace("tibble", quietly = TRUE)) tibble::as_tibble(frame) else frame
}
