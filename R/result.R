# The result of distributed_fit(). In Python: jobs/result.py.

# result: The result of the core. model: The model function, if R has made the model. errors: Where
# `recorded()` keeps the errors of the model function. own_dir: Whether the user has chosen the run directory.
new_fit <- function(result, model = NULL, errors = NULL, own_dir = FALSE) {
  # Without the frames of this call, which saveRDS() would save.
  session <- rlang::env(emptyenv(), result = result, errors = errors)
  if (is_r_function(model)) {
    # saveRDS() leaves it out: it may hold much more than the model needs.
    session$model <- rlang::new_weakref(session, model)
  }
  # saveRDS() leaves out times, processes and temporary folders: the same job gives the same file.
  session$parts <- rlang::new_weakref(session, core(convert = TRUE)$fit_for_r(result))
  lasting <- core(convert = TRUE)$without_run(result, run_dir = own_dir)
  parts <- core(convert = TRUE)$fit_for_r(lasting)
  structure(
    list(
      history = lapply(parts$history, values_by_epoch),
      metrics = lapply(parts$metrics, \(value) as.numeric(unlist(value))),
      params = parts$params,
      workers = frame_of(parts$workers),
      run_dir = parts$run_dir
    ),
    parts = parts,
    session = session,
    saved = save_fit(lasting, model),
    class = "tfdistr_fit"
  )
}

# What the core says of a fit; in the session that has trained it, with its times.
parts_of <- function(fit) {
  here <- attr(fit, "session")$parts
  (if (!is.null(here)) rlang::wref_value(here)) %||% attr(fit, "parts")
}

# The values of a metric, one for each epoch: a numeric vector, or a matrix with a row for each epoch if the
# metric has several values.
values_by_epoch <- function(values) {
  if (is.list(values) && length(values)) do.call(rbind, lapply(values, unlist)) else as.numeric(values)
}

# The result as saveRDS() can write it: the bytes of the core and, for a model that R makes, its function.
save_fit <- function(result, model) {
  tryCatch(
    {
      of_r <- is_r_function(model)
      bytes <- core()$fit_to_bytes(result, with_recipe = !of_r)
      # R gets a raw vector from a bytearray only.
      raw <- reticulate::py_to_r(reticulate::import_builtins(convert = FALSE)$bytearray(bytes))
      functions <- if (of_r) pack_functions(list(model = model))
      warn_of_size(sum(lengths(functions)), model)
      list(bytes = raw, functions = functions)
    },
    error = function(error) list(error = conditionMessage(error))
  )
}

# Warns where a result is large because of what its model function uses.
warn_of_size <- function(bytes, model, limit = 1e8) {
  if (bytes > limit) {
    largest <- utils::head(sort(sizes_of_variables(capture_functions(list(model = model))), TRUE), 1L)
    warn_user(paste0(
      sprintf("The model function takes %.0f MB to workers and into saveRDS() of the result", bytes / 1e6),
      sprintf(", of which `%s` has %.0f MB", names(largest), largest / 1e6),
      ". If the model needs only a part of it, compute that part outside of the function."
    ))
  }
}

# The result of the core. After readRDS() it is made of the bytes.
python_fit <- function(fit, call = rlang::caller_env()) {
  session <- attr(fit, "session")
  if (is_python(session$result) && reticulate::py_is_null_xptr(session$result)) {
    saved <- attr(fit, "saved")
    if (!is.null(saved$error)) {
      abort(
        "argument", "This result was saved without its model, which other sessions cannot make.",
        received = saved$error, fix = "Save the model itself: fit$model$save(\"model.keras\").", call = call
      )
    }
    session$errors <- new.env(parent = emptyenv())
    model <- if (!is.null(saved$functions)) unpack_functions(saved$functions)$model
    if (!is.null(model)) session$model <- rlang::new_weakref(session, model)
    build <- if (!is.null(model)) recorded(model, session$errors)
    session$result <- with_conditions(
      core(convert = TRUE)$fit_from_bytes(saved$bytes, build),
      call = call
    )
  }
  session$result
}

# The function by which R makes the model of a fit; NULL if Python does.
model_function <- function(fit) {
  python_fit(fit)
  model <- attr(fit, "session")$model
  if (!is.null(model)) rlang::wref_value(model)
}

#' The trained model
#'
#' The same as `fit$model`.
#'
#' @param fit A result of [distributed_fit()].
#' @return The Keras model, in this process. It is built on first use.
#' @section Errors: `tfdistr_error_argument` if another session has saved the result without its model, and
#'   the errors of the model function.
#' @examplesIf (interactive() || nzchar(Sys.getenv("NOT_CRAN"))) && requireNamespace("keras3", quietly = TRUE)
#' library(keras3)
#' model <- function() {
#'   keras_model_sequential() |>
#'     layer_dense(1) |>
#'     compile("sgd", "mse")
#' }
#' fit <- distributed_fit(model, as.matrix(mtcars["wt"]), mtcars$mpg, seed = 1)
#' count_params(trained_model(fit))
#' @family functions for training
#' @export
trained_model <- function(fit) {
  result <- python_fit(fit)
  with_conditions(result$model, record = attr(fit, "session")$errors)
}

#' @export
`$.tfdistr_fit` <- function(x, name) {
  switch(name,
    model = trained_model(x),
    workers = frame_of(parts_of(x)$workers),
    run_dir = parts_of(x)$run_dir,
    .subset2(x, name)
  )
}

#' @export
`[[.tfdistr_fit` <- function(x, i, exact = TRUE) {
  name <- if (is.numeric(i) && length(i) == 1L) names(x)[i] else i
  if (rlang::is_string(name, c("model", "workers", "run_dir"))) {
    do.call("$", list(x, name))
  } else {
    .subset2(x, i, exact = exact)
  }
}

#' @export
print.tfdistr_fit <- function(x, ...) {
  cli::cat_line(parts_of(x)$text)
  invisible(x)
}

#' The result of a training job
#'
#' * `summary()`: summarize a result: what was trained, where the time of each worker went, and the
#'   bottleneck.
#' * `plot()`: plot the history: one panel for each metric, with training and validation. It returns a plot of
#'   ggplot2, as `autoplot()` does, if this is installed; else it draws with base graphics. Of the summary,
#'   plot where the time went: one bar for each worker, with its seconds by part.
#' * `as.data.frame()`: give the history as a data frame: one row for each epoch and metric.
#'
#' `saveRDS()` saves a result with its model: the weights, the state of the optimizer, and what makes a model
#' of its kind. It leaves out what differs between two runs of a job: times, process ids, hosts and
#' temporary folders, which are `NA` or `NULL` then. So a target of the package targets that is built again
#' from the same inputs is the same. After `readRDS()`, in any session, its predictions are bitwise identical.
#' For this, the result holds the weights and the state of the optimizer as they were after the training, in
#' memory. So `bundle()` of the package bundle returns a result unchanged.
#'
#' @param object,x A result of [distributed_fit()]. For `plot()`, also its summary.
#' @param ... For `plot()`, graphical parameters of [graphics::matplot()] for each panel, with which base
#'   graphics draw it, or of [graphics::barplot()]; else not used.
#' @return `summary()`: a list of class `summary.tfdistr_fit` with `title`, `history` (a data frame with a row
#'   for each epoch and a column for each metric), `workers`, `times` and `bottleneck` (one sentence that
#'   names what limits the speed). `times` is a data frame with a row for each worker that has trained, and
#'   its seconds since its last start: `computing`, `waiting_for_peers`, `exchanging`, `waiting_for_data`,
#'   `checkpoints`, `callbacks` and `start` (until the first step is done). A part that cannot be measured is
#'   not there: its time is in `computing`, and that of `waiting_for_peers` with the ring in `exchanging`. The
#'   printed shares are those of the worker's own time. `plot()`: a ggplot, or its argument, invisibly.
#'   `as.data.frame()`: a data frame with a row for each epoch and metric and the columns `epoch` (from 1),
#'   `metric`, `value` and `data` ("training" or "validation").
#' @examplesIf (interactive() || nzchar(Sys.getenv("NOT_CRAN"))) && requireNamespace("keras3", quietly = TRUE)
#' library(keras3)
#' model <- function() {
#'   keras_model_sequential() |>
#'     layer_dense(1) |>
#'     compile("sgd", "mse", metrics = "mae")
#' }
#' fit <- distributed_fit(model, mtcars[c("wt", "qsec")], mtcars$mpg / 20, epochs = 5, seed = 1)
#' summary(fit)
#' plot(summary(fit))
#' plot(fit)
#' as.data.frame(fit)
#' @export
summary.tfdistr_fit <- function(object, ...) {
  parts <- parts_of(object)
  structure(
    list(
      title = parts$text[[1L]], history = frame_of(parts$wide), workers = object$workers,
      times = if (length(parts$times)) frame_of(parts$times), bottleneck = parts$bottleneck
    ),
    time_lines = as.character(parts$time_lines),
    class = "summary.tfdistr_fit"
  )
}

#' @export
print.summary.tfdistr_fit <- function(x, ...) {
  cli::cat_line(x$title)
  cli::cat_line()
  print(x$history, digits = 4L, row.names = FALSE)
  cli::cat_line()
  print(x$workers[names(x$workers) != "log"], digits = 3L, row.names = FALSE)
  if (length(attr(x, "time_lines"))) cli::cat_line(attr(x, "time_lines"))
  invisible(x)
}

#' @rdname summary.tfdistr_fit
#' @export
plot.summary.tfdistr_fit <- function(x, ...) {
  if (is.null(x$times)) {
    abort(
      "argument", "Cannot plot where the time went if no worker has measured its time.",
      received = "a fit without times", fix = "Plot the summary in the session that has trained the fit."
    )
  }
  seconds <- t(as.matrix(x$times[-1L])) # without the index
  colours <- grDevices::hcl.colors(nrow(seconds), "Set 2")
  workers <- nrow(x$times)
  graphics::barplot(
    seconds[, rev(seq_len(workers)), drop = FALSE],
    names.arg = rev(x$times$index), horiz = TRUE, las = 1L, col = colours, xlab = "seconds", ylab = "worker",
    ylim = c(0, 1.2 * workers + 1.5), ...
  )
  labels <- gsub("_", " ", rownames(seconds), fixed = TRUE)
  graphics::legend("top", labels, fill = colours, ncol = 4L, bty = "n", cex = 0.8)
  invisible(x)
}

#' @rdname summary.tfdistr_fit
#' @export
plot.tfdistr_fit <- function(x, ...) {
  if (requireNamespace("ggplot2", quietly = TRUE) && !...length()) {
    return(autoplot.tfdistr_fit(x))
  }
  history <- summary(x)$history
  metrics <- grep("^val_", setdiff(names(history), "epoch"), value = TRUE, invert = TRUE)
  before <- graphics::par(mfrow = grDevices::n2mfrow(length(metrics))[2:1])
  on.exit(graphics::par(before))
  for (metric in metrics) {
    values <- as.matrix(history[intersect(c(metric, paste0("val_", metric)), names(history))])
    graphics::matplot(
      history$epoch, values,
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
#' @rawNamespace S3method(ggplot2::autoplot, tfdistr_fit)
autoplot.tfdistr_fit <- function(object, ...) { # nolint
  rows <- as.data.frame(object)
  rows$metric <- factor(rows$metric, unique(rows$metric))
  by <- ggplot2::aes(x = .data$epoch, y = .data$value, colour = .data$data)
  ggplot2::ggplot(rows, by) +
    ggplot2::geom_line() +
    ggplot2::geom_point() +
    ggplot2::facet_wrap("metric", scales = "free_y") +
    ggplot2::labs(y = NULL, colour = NULL)
}

# The elements of the list: str() makes no model, as `$` offers none.
#' @rawNamespace S3method(utils::str, tfdistr_fit)
str.tfdistr_fit <- function(object, ...) {
  cat("tfdistr_fit: ")
  elements <- rlang::set_names(lapply(names(object), function(name) object[[name]]), names(object))
  utils::str(elements, give.attr = FALSE, ...)
}

# A fit goes to Python as its model: keras3::save_model(fit, "model.keras") saves it.
#' @rawNamespace S3method(reticulate::r_to_py, tfdistr_fit)
r_to_py.tfdistr_fit <- function(x, convert = FALSE) { # nolint
  trained_model(x)
}

#' @rdname summary.tfdistr_fit
#' @param row.names,optional Not used.
#' @export
as.data.frame.tfdistr_fit <- function(x, row.names = NULL, optional = FALSE, ...) { # nolint
  frame_of(attr(x, "parts")$long)
}
