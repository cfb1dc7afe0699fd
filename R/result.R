# The result of distributed_fit(). In Python: jobs/result.py.

# result: The result of the core. errors: Where `recorded()` keeps the errors of the model function.
new_fit <- function(result, errors = NULL) {
  structure(
    list(
      history = lapply(result$history, as.numeric),
      metrics = lapply(result$metrics, as.numeric),
      params = result$params,
      workers = workers_frame(result$workers),
      run_dir = result$run_dir
    ),
    python = result,
    errors = errors,
    class = "tfdistr_fit"
  )
}

# The data frame of the core's list of workers.
workers_frame <- function(workers) {
  rows <- lapply(workers, function(worker) {
    worker$log <- worker$log %||% NA_character_
    columns <- c("index", "host", "pid", "status", "seconds", "log")
    if (!is.null(worker$task)) { # with parameter servers, some rows are no workers
      columns <- c(columns, "task", "local_steps", "dropped")
      worker$local_steps <- worker$local_steps %||% NA_integer_
      worker$dropped <- worker$dropped %||% NA_integer_
    }
    as.data.frame(worker[columns])
  })
  do.call(rbind, rows)
}

#' The trained model
#'
#' The same as `fit$model`.
#'
#' @param fit A result of [distributed_fit()].
#' @return The Keras model, in this process. It is built on first use.
#' @section Errors: The errors of the model function.
#' @examplesIf reticulate::py_module_available("keras")
#' model <- function() {
#'   keras <- reticulate::import("keras")
#'   model <- keras$Sequential(list(keras$layers$Dense(1L)))
#'   model$compile("sgd", "mse")
#'   model
#' }
#' fit <- distributed_fit(model, as.matrix(mtcars["wt"]), mtcars$mpg, seed = 1)
#' trained_model(fit)$count_params()
#' @family functions for training
#' @export
trained_model <- function(fit) {
  with_conditions(attr(fit, "python")$model, record = attr(fit, "errors"))
}

#' @export
`$.tfdistr_fit` <- function(x, name) {
  if (name == "model") {
    trained_model(x)
  } else {
    .subset2(x, name)
  }
}

#' @export
`[[.tfdistr_fit` <- function(x, i) {
  if (identical(i, "model")) x$model else .subset2(x, i)
}

#' @export
print.tfdistr_fit <- function(x, ...) {
  cli::cat_line(fit_title(x))
  cli::cat_line(sprintf("  %s: %.4f", names(x$metrics), unlist(x$metrics)))
  if (!is.null(x$run_dir)) cli::cat_line("Logs: ", file.path(x$run_dir, "logs"))
  invisible(x)
}

fit_title <- function(x) {
  workers <- x$params$workers
  batch <- x$params$batch_size
  sprintf(
    "Trained on %d %s, %d epochs, global batch %s, seed %d",
    workers, if (workers == 1L) "worker" else "workers", x$params$epochs,
    if (is.null(batch)) "of the dataset" else batch, x$params$seed
  )
}

#' The result of a training job
#'
#' `summary()` gives the history and the status of each worker; `plot()` draws one panel for each metric, with
#' training and validation; `as.data.frame()` gives the history as a data frame.
#'
#' @param object,x A result of [distributed_fit()].
#' @param ... For `plot()`, graphical parameters of [graphics::matplot()] for each panel; else not used.
#' @return `summary()`: a list of class `summary.tfdistr_fit` with `title`, `history` (a data frame with a row
#'   for each epoch and a column for each metric) and `workers`. `plot()`: its argument, invisibly.
#'   `as.data.frame()`: a data frame with a row for each epoch and metric and the columns `epoch` (from 1),
#'   `metric`, `value` and `data` ("training" or "validation").
#' @examplesIf reticulate::py_module_available("keras")
#' model <- function() {
#'   keras <- reticulate::import("keras")
#'   model <- keras$Sequential(list(keras$layers$Dense(1L)))
#'   model$compile("sgd", "mse", metrics = list("mae"))
#'   model
#' }
#' fit <- distributed_fit(model, as.matrix(mtcars[c("wt", "qsec")]), mtcars$mpg / 20, epochs = 5, seed = 1)
#' summary(fit)
#' plot(fit)
#' as.data.frame(fit)
#' @export
summary.tfdistr_fit <- function(object, ...) {
  history <- as.data.frame(c(list(epoch = epochs(object)), object$history), optional = TRUE)
  structure(
    list(title = fit_title(object), history = history, workers = object$workers),
    class = "summary.tfdistr_fit"
  )
}

epochs <- function(fit) {
  seq_len(max(lengths(fit$history), 0L))
}

#' @export
print.summary.tfdistr_fit <- function(x, ...) {
  cli::cat_line(x$title)
  cli::cat_line()
  print(x$history, digits = 4L, row.names = FALSE)
  cli::cat_line()
  print(x$workers[names(x$workers) != "log"], digits = 3L, row.names = FALSE)
  invisible(x)
}

#' @rdname summary.tfdistr_fit
#' @export
plot.tfdistr_fit <- function(x, ...) {
  metrics <- grep("^val_", names(x$history), value = TRUE, invert = TRUE)
  before <- graphics::par(mfrow = grDevices::n2mfrow(length(metrics))[2:1])
  on.exit(graphics::par(before))
  for (metric in metrics) {
    values <- do.call(cbind, x$history[intersect(c(metric, paste0("val_", metric)), names(x$history))])
    graphics::matplot(
      epochs(x), values,
      type = "b", pch = 19L, lty = 1L, col = 1:2, xlab = "epoch", ylab = "", main = metric, ...
    )
    rises <- values[nrow(values), 1L] > values[1L, 1L]
    graphics::legend(
      if (rises) "bottomright" else "topright", c("training", "validation")[seq_len(ncol(values))],
      col = 1:2, lty = 1L, bty = "n"
    )
  }
  invisible(x)
}

#' @rdname summary.tfdistr_fit
#' @param row.names,optional Not used.
#' @export
as.data.frame.tfdistr_fit <- function(x, row.names = NULL, optional = FALSE, ...) { # nolint
  names <- rep(names(x$history), lengths(x$history))
  data.frame(
    epoch = as.integer(unlist(lapply(x$history, seq_along), use.names = FALSE)),
    metric = sub("^val_", "", names),
    value = as.numeric(unlist(x$history, use.names = FALSE)),
    data = ifelse(startsWith(names, "val_"), "validation", "training")
  )
}
