# Evaluation and prediction with a trained model. In Python: jobs/inference.py.

#' Predict with a trained model
#'
#' Computes the outputs of the model: of each example once, in the order of the data. Each worker of `cluster`
#' computes whole batches, one after the other, so the outputs are those of one worker.
#'
#' @param object A result of [distributed_fit()].
#' @param newdata Inputs, in one of the forms that `x` of [distributed_fit()] may have. Of a data frame,
#'   or a matrix with column names, the columns that the model was trained with are taken by their names.
#'   Targets are ignored.
#' @param x The same as `newdata`, by the name that Keras has.
#' @param ... Not used.
#' @param type String: `"raw"`, the outputs as they are; `"class"`, a factor with the levels of the `y` of the
#'   training; `"prob"`, a matrix with a column for each level; or `"numeric"`, a vector where an output has
#'   one column. With several outputs, those whose `y` was no factor are numeric. Rows whose outputs are NaN,
#'   as those with missing inputs, have no class and no probabilities.
#' @param batch_size Number of examples in a batch; `NULL` means 32, or the batches that `newdata` gives.
#' @param verbose 0 (silent), or as in [distributed_fit()].
#' @param steps Number of batches; by default all.
#' @param cluster Where to compute: [local_cluster()] or another cluster; by default this process.
#' @param output String: a new or empty folder. The outputs are written there, in files of about 64 MiB each,
#'   and are never in memory together.
#' @param output_format Format of these files: `"npy"` (of NumPy), or `"parquet"` (needs Python's pyarrow; R
#'   reads them with the package arrow): a row for each example, a column for each output.
#' @return With `type = "raw"`, an array, whose first dimension counts the examples, or a list of arrays for
#'   a model with several outputs. R has no integers of 64 bits: they become doubles, and above 2^53 they are
#'   an error. With `output`: the paths of the files, in the order of the data.
#' @section Errors: `tfdistr_error_argument` if the data does not fit the model;
#'   `tfdistr_error_cluster_start` if the workers could not be started or did not find each other;
#'   `tfdistr_error_data_shard` if the data can't be split over the workers; `tfdistr_error_worker_failed` if
#'   a worker failed.
#' @examplesIf (interactive() || nzchar(Sys.getenv("NOT_CRAN"))) && requireNamespace("keras3", quietly = TRUE)
#' library(keras3)
#' model <- function() {
#'   keras_model_sequential() |>
#'     layer_dense(1) |>
#'     compile("sgd", "mse")
#' }
#' fit <- distributed_fit(model, mtcars[c("wt", "qsec")], mtcars$mpg / 20, epochs = 5, seed = 1)
#' head(predict(fit, mtcars))
#' evaluate(fit, mtcars, mtcars$mpg / 20)
#' @family functions for training
#' @export
predict.tfdistr_fit <- function(object, newdata, ..., x, type = "raw", batch_size = NULL, verbose = 0,
                                steps = NULL, cluster = NULL, output = NULL, output_format = "npy") {
  refuse_dots("predict", ...)
  if (missing(newdata) == missing(x)) {
    abort(
      "argument", "Pass the inputs once, as `newdata` or as `x`.",
      received = if (missing(x)) "none of them" else "both", fix = "Write predict(fit, newdata)."
    )
  }
  if (missing(newdata)) newdata <- x
  check_type(type, output)
  predicted <- use_fit(
    object, core()$predict, newdata, cluster, verbose,
    batch_size = batch_size, steps = steps, output = output, output_format = output_format, name = "newdata"
  )
  levels <- if (type != "raw") core(convert = TRUE)$levels_of_outputs(python_fit(object), predicted)
  predicted <- with_conditions(values_for_r(predicted))
  if (!is.null(output)) {
    paths(predicted)
  } else if (type == "raw") {
    predicted
  } else {
    outputs_as(type, predicted, levels)
  }
}

paths <- function(found) {
  if (is_python(found)) {
    return(reticulate::py_str(found))
  }
  found <- lapply(found, paths)
  if (all(lengths(found) == 1L)) unlist(found) else found
}

#' Evaluate a trained model
#'
#' Computes the loss and the metrics of the model for data. With `cluster`, each worker computes its share of
#' each batch, and the values are those of one worker.
#'
#' With keras3, `evaluate()` is also its function for models, whichever package was attached last.
#'
#' @param x Inputs, in one of the forms that `x` of [distributed_fit()] may have.
#' @param y Targets, where `x` is arrays or a data frame.
#' @param sample_weight Numeric vector: the weight of each example, where `x` is arrays.
#' @param batch_size Number of examples in a global batch; `NULL` means 32, or the batches that `x` gives.
#' @param cluster Where to compute: [local_cluster()] or another cluster; by default this process, or the
#'   cluster that it has joined. After a fit with `virtual_workers`, where TensorFlow already runs here with
#'   several threads, it is one worker on this machine.
#' @inheritParams predict.tfdistr_fit
#' @return A named list of numbers.
#' @section Errors: `tfdistr_error_argument` if the data does not fit the model, or has no targets;
#'   `tfdistr_error_cluster_config` if TF_CONFIG is not valid; `tfdistr_error_cluster_start` if the workers
#'   could not be started or did not find each other; `tfdistr_error_data_shard` if the data can't be split
#'   over the workers; `tfdistr_error_worker_failed` if a worker failed.
#' @inherit predict.tfdistr_fit examples
#' @family functions for training
#' @export
evaluate <- function(object, ...) {
  UseMethod("evaluate")
}

#' @export
evaluate.default <- function(object, ...) {
  method <- method_of_others("evaluate", object)
  if (is.null(method)) {
    abort(
      "argument", "`object` must be a result of distributed_fit().",
      received = paste("an object of class", toString(class(object))),
      fix = "For a Keras model, use model$evaluate(), or attach keras3."
    )
  }
  method(object, ...)
}

# The method of the generic of this name in another package. A call of that generic would find the default
# method here again.
method_of_others <- function(name, object) {
  for (package in intersect(c("tensorflow", "generics"), loadedNamespaces())) {
    for (class in class(object)) {
      method <- utils::getS3method(name, class, optional = TRUE, envir = asNamespace(package))
      if (!is.null(method)) return(method)
    }
  }
}

#' @rdname evaluate
#' @export
#' @rawNamespace S3method(generics::evaluate, tfdistr_fit)
#' @rawNamespace S3method(tensorflow::evaluate, tfdistr_fit)
evaluate.tfdistr_fit <- function(object, x, y = NULL, ..., sample_weight = NULL, batch_size = NULL,
                                 verbose = 0, steps = NULL, cluster = NULL) {
  refuse_dots("evaluate", ...)
  arguments_of(rlang::current_fn(), environment())
  metrics <- use_fit(
    object, core(convert = TRUE)$evaluate, x, cluster, verbose,
    y = python_targets(y, "y"), sample_weight = python_weights(sample_weight, "sample_weight"),
    batch_size = batch_size, steps = steps
  )
  lapply(metrics, as.numeric)
}

# Calls a function of the core, `use`, with a fit and data.
use_fit <- function(fit, use, data, cluster, verbose = 0, ..., name = "x", call = rlang::caller_env()) {
  display <- make_display(verbose)
  on.exit(display$close())
  reload_environ()
  job <- new_job(list(model = model_function(fit), data = data), cluster, display, call = call)
  with_conditions(record = job$errors, call = call, {
    x <- job$part(data, "data", function(value, call) python_inputs(value, name, call))
    withr::with_preserve_seed(
      use(job$caller(), job$model(fit), x = x, cluster = cluster, ..., name = name)
    )
  })
}
