# Data: data sets by name, the split of a dataset, and the conversion of R's arrays and data frames. In
# Python: data/datasets.py, data/order/shard.py and data/source.py.

#' Describe a data set by name
#'
#' Gives a description for [distributed_fit()]. Every worker opens the data set itself, and reads the examples
#' that it uses.
#'
#' @param name String: "digits" (1,797 images of 8 x 8 pixels of handwritten digits, part of this package); or
#'   the format of the files that `files` names: "parquet", "csv", "arrow", "image_folder", "tfrecord" or
#'   "arrayrecord"; or the name of a data set of TensorFlow Datasets that is prepared in `data_dir`.
#' @param split String: for "digits", "train", "test" or "all"; for other data sets, any split or slice that
#'   TensorFlow Datasets knows, such as "train\[:10%\]". Files have no splits.
#' @param ... Not used.
#' @param data_dir String: folder of the prepared data sets; by default the folder of TensorFlow Datasets.
#' @param supervised `TRUE` for examples that are pairs (input, label); `FALSE` for named lists of all
#'   features. Of files, `target` says this.
#' @param files String or character vector: paths, patterns such as "part-*.parquet", or folders. The files of
#'   a pattern and of a folder are sorted by name. All workers must have them at the same path. Of
#'   "image_folder": a folder that has a folder of images for each class.
#' @param features Of tables, a character vector: names of the columns of `x`; by default all but `target`. If
#'   all are numbers, `x` is a matrix, as for a data frame. One column of images is `x` itself. Otherwise `x`
#'   is a named list of columns. Of records, a named list that has for each feature of a `tf.train.Example` a
#'   list with `shape`, `dtype` ("float32", "int64" or "string") and perhaps `default`, or only the dtype, or
#'   a `tf$io$FixedLenFeature`.
#' @param target Character vector: name of the column or feature of `y`, or several names (a list of one name
#'   stands for several columns, of which there is one); `NULL` for examples without `y`. Text in a column is
#'   the number of its class, from 0 in sorted order; the fit keeps the classes, as those of a factor.
#' @param fill Of tables: the value in the place of missing values, or a named list with a value for each
#'   column that may have some. By default a missing value is an error. NaN is a number.
#' @param matrix Of tables: `TRUE` if several columns become one array, `FALSE` if not; by default they do if
#'   all are numbers.
#' @param delimiter Of "csv", a string: the character between two values; by default ",".
#' @param image_size Of images, two whole numbers: height and width to which they are resized, as Keras's
#'   `image_dataset_from_directory()` does, to numbers from 0 to 255. By default images must have one size,
#'   and have whole numbers. Images are the files of "image_folder", and columns of "parquet" and "arrow" as
#'   Hugging Face's datasets have them.
#' @param color_mode Of images, a string: "rgb" (the default), "grayscale" or "rgba".
#' @return A list of class `tfdistr_dataset` with `name`, `split`, `data_dir`, `supervised`, `files`,
#'   `examples`, `class_names` (the classes of a target of text, or of a folder of images, in the order of
#'   their numbers; of several targets, a list by target) and two functions without arguments: `arrays()`
#'   gives all examples as a list of R arrays, input and label; `dataset()` a `tf.data.Dataset` of the
#'   examples, not batched, in a fixed order.
#' @section Errors: `tfdistr_error_argument` if there is no such data set, split, file or column, if a file is
#'   damaged, if its columns have other types than those of the first file, if a value is missing, or if a
#'   Python package is missing that reads the format.
#'   `arrays()` also raises it if the examples can't be arrays (unequal shapes, or more than 512 MiB).
#' @source E. Alpaydin and C. Kaynak (1998), Optical Recognition of Handwritten Digits, UCI Machine Learning
#'   Repository, \doi{10.24432/C50P49}, licence CC BY 4.0.
#' @examplesIf interactive() || nzchar(Sys.getenv("NOT_CRAN"))
#' digits <- load_dataset("digits", "test")
#' digits
#' dim(digits$arrays()[[1]])
#' @family functions for data
#' @export
load_dataset <- function(name, split = "train", ..., data_dir = NULL, supervised = TRUE, files = NULL,
                         features = NULL, target = NULL, fill = NULL, matrix = NULL, delimiter = NULL,
                         image_size = NULL, color_mode = NULL) {
  refuse_dots("load_dataset", ...)
  arguments <- arguments_of(rlang::current_fn(), environment())
  described <- call_core("load_dataset")
  python <- function() {
    read <- reticulate::py_is_null_xptr(described) # by readRDS()
    if (read) call_with_arguments("load_dataset", arguments, call = NULL) else described
  }
  # The attributes of data sets in files.
  known <- function(name) {
    if (reticulate::py_has_attr(described, name)) {
      value <- reticulate::py_to_r(described[[name]])
      if (is.null(names(value))) unlist(value) else lapply(value, unlist)
    }
  }
  structure(
    list(
      name = name, split = split, data_dir = data_dir, supervised = supervised,
      files = known("files"), examples = known("examples"), class_names = known("class_names"),
      arrays = function() {
        with_conditions(values_for_r(reticulate::py_call(reticulate::py_get_attr(python(), "arrays"))))
      },
      dataset = function() with_conditions(python()$dataset())
    ),
    python = python,
    class = "tfdistr_dataset"
  )
}

#' @export
print.tfdistr_dataset <- function(x, ...) {
  part <- if (is.null(x$files)) {
    paste("split", dQuote(x$split, FALSE))
  } else {
    more <- if (length(x$files) > 2L) sprintf("and %d more files", length(x$files) - 2L)
    sprintf("%d examples in %s", x$examples, paste(c(utils::head(x$files, 2L), more), collapse = ", "))
  }
  cli::cat_line("Data set ", dQuote(x$name, FALSE), ", ", part)
  invisible(x)
}

#' Choose how a dataset is split over the workers
#'
#' TensorFlow's policy AUTO fails for a data set that has fewer files than there are workers. `auto_shard()`
#' chooses a policy from what the pipeline reads. It is for calls of Keras's `fit()`; [distributed_fit()] does
#' not need it.
#'
#' @param dataset A `tf.data.Dataset`.
#' @param num_workers Number of workers; by default the number of the current strategy.
#' @param policy String: "auto" chooses; "file", "data", "hint" and "off" are TensorFlow's policies of these
#'   names.
#' @param exact With "auto", `TRUE` keeps the global batches of one worker (policy DATA) even where each
#'   worker could read separate files (policy FILE). FILE reads less and mixes the batches differently.
#' @return The dataset with its auto-shard policy set. The choice and its reason go to Python's logger
#'   "tfdistr", at level info.
#' @section Errors: `tfdistr_error_argument` if an argument is not of that form; `tfdistr_error_data_shard` if
#'   the policy can't work with this pipeline and number of workers.
#' @examplesIf interactive() || nzchar(Sys.getenv("NOT_CRAN"))
#' dataset <- load_dataset("digits")$dataset()
#' auto_shard(dataset, num_workers = 4)
#' @family functions for data
#' @export
auto_shard <- function(dataset, num_workers = NULL, policy = "auto", exact = TRUE) {
  call_core("auto_shard")
}

# Converts data for the Python core, to arrays with the same dimensions, tuples and dictionaries. What Python
# can't hold is an error of the core (r/values.py).
#
# targets: Whether a factor becomes the numbers of its classes, from 0, and their names, by which the core
#   matches later data, and not text.
# complete: Whether a missing number is an error.
python_data <- function(value, name, call = rlang::caller_env(), targets = FALSE, complete = targets) {
  if (is.null(value) || is_python(value)) {
    value
  } else if (inherits(value, "tfdistr_dataset")) {
    attr(value, "python")()
  } else if (is_of_arrow(value)) {
    python_arrow(value, name, call)
  } else if (is.data.frame(value)) {
    columns <- Map(python_array, as.list(value), part_names(name, value), list(call), targets, complete)
    core()$Columns(named_parts(columns, value, name, call))
  } else if (is.list(value) && !is.object(value)) {
    parts <- Map(python_data, value, part_names(name, value), list(call), targets, complete)
    if (is.null(names(value))) reticulate::tuple(unname(parts)) else named_parts(parts, value, name, call)
  } else {
    python_array(value, name, call, targets, complete)
  }
}

# Whether a value is a table or a column of the packages arrow or nanoarrow. Others have a class "Array", too.
is_of_arrow <- function(value) {
  of_arrow <- c("ArrowTabular", "RecordBatchReader", "ChunkedArray", "Array")
  inherits(value, "ArrowObject") && inherits(value, of_arrow) ||
    inherits(value, c("nanoarrow_array", "nanoarrow_array_stream"))
}

# A table or a column of Arrow, as pyarrow has it. Arrow's C interface copies nothing.
python_arrow <- function(value, name, call) {
  with_conditions(core()$check_pyarrow(name, class(value)[[1L]]), call = call)
  if (inherits(value, "RecordBatchReader")) value <- value$read_table()
  if (inherits(value, "ArrowObject")) {
    return(reticulate::r_to_py(value)) # by the methods of arrow
  }
  stream <- nanoarrow::as_nanoarrow_array_stream(value)
  with_conditions(core()$from_address(nanoarrow::nanoarrow_pointer_addr_chr(stream), name), call = call)
}

# The inputs of a model.
python_inputs <- function(value, name, call = rlang::caller_env()) {
  warn_of_missing(value, name)
  python_columns(value, name, call)
}

# Data with names of columns, also of those of a matrix, by which the core matches them.
python_columns <- function(value, name, call = rlang::caller_env()) {
  names <- if (is.matrix(value) && (is.numeric(value) || is.logical(value))) colnames(value)
  made <- python_data(value, name, call)
  if (is.null(names) || anyDuplicated(names) || !all(nzchar(names))) {
    made
  } else {
    core()$Matrix(made, reticulate::tuple(as.list(names)))
  }
}

python_targets <- function(value, name, call = rlang::caller_env()) {
  python_data(value, name, call, targets = TRUE)
}

# The weights of examples.
python_weights <- function(value, name, call = rlang::caller_env()) {
  python_data(value, name, call, complete = TRUE)
}

python_array <- function(value, name, call, targets = FALSE, complete = targets) {
  if (is.factor(value)) {
    made <- factor_values(value, targets)
    if (targets) {
      numbers <- python_array(made, name, call)
      return(core()$Classes(numbers, reticulate::tuple(as.list(levels(value)))))
    }
    value <- made
  }
  if (!(is.numeric(value) || is.logical(value) || is.character(value)) || is.object(value)) {
    classes <- unique(c(if (!is.object(value)) typeof(value), class(value), methods::is(value)))
    with_conditions(core()$refuse_class(name, as.list(classes)), call = call)
  }
  refuse <- function(code) with_conditions(code, call = call)
  # NA of type double is NaN in Python, which no class and no weight can be. NA of other types would be an
  # ordinary value.
  if ((complete || !is.double(value)) && anyNA(value) && (missing <- sum(is.na(value) & !is.nan(value)))) {
    refuse(core()$refuse_missing(name, missing, length(value)))
  }
  unknown <- if (is.character(value)) !validEnc(value) | Encoding(value) == "bytes"
  if (any(unknown)) refuse(core()$refuse_encoding(name, encodeString(value[unknown][[1L]], quote = "'")))
  reticulate::r_to_py(as.array(value))
}

# The text of a factor, or the numbers of its classes, with the same dimensions and missing values.
factor_values <- function(value, numbers) {
  made <- if (numbers) as.integer(value) - 1L else as.character(value)
  dim(made) <- dim(value)
  made
}

named_parts <- function(parts, of, name, call) {
  with_conditions(core()$check_names(as.list(names(of)), name), call = call)
  reticulate::py_dict(names(of), unname(parts))
}

# Warns of missing numbers, but not of NaN, which is a number that somebody has computed.
warn_of_missing <- function(value, name) {
  if (is.data.frame(value) || is.list(value) && !is.object(value)) {
    Map(warn_of_missing, as.list(value), part_names(name, value))
  } else if (is.double(value) && anyNA(value) && (missing <- sum(is.na(value) & !is.nan(value)))) {
    words <- "`%s` has %d missing values of %d, which are NaN for the model."
    warn_user(sprintf(words, name, missing, length(value)))
  }
  invisible()
}

# A function for the data, as the core calls it. It returns a dataset, or it is a generator: it returns a
# batch at each call and NULL at the end. R runs on the thread that trains, so the core calls it there.
data_function <- function(fun) {
  force(fun)
  function(...) {
    made <- call_with(fun, ...)
    if (is.null(made) || is_python(made)) {
      return(made)
    }
    core()$Pull(python_batch(made), function() python_batch(call_with(fun, ...)))
  }
}

# Whether the code of a function shows that it returns lists, the batches of a generator, and no dataset.
is_generator <- function(fun) {
  returned <- returned_code(body(fun))
  made <- assigned(list(body(fun)))
  named <- vapply(returned, is.symbol, NA)
  returned[named] <- lapply(returned[named], \(name) made[[as.character(name)]])
  any(vapply(returned, rlang::is_call, NA, "list"))
}

# The code of the values that code may return.
returned_code <- function(code) {
  inner <- if (!is.call(code)) {
    NULL
  } else if (rlang::is_call(code, "{") && length(code) > 1L) {
    list(code[[length(code)]])
  } else if (rlang::is_call(code, "if")) {
    as.list(code)[-(1:2)]
  } else if (rlang::is_call(code, c("return", "("), n = 1L)) {
    list(code[[2L]])
  }
  if (is.null(inner)) list(code) else unlist(lapply(inner, returned_code), recursive = FALSE)
}

# A batch of a generator: an unnamed list is (x, y) or (x, y, sample_weight), anything else is x.
python_batch <- function(batch) {
  if (!is.null(batch)) {
    python_parts(batch, "the batch", python_columns)
  }
}

part_names <- function(name, value) {
  paste0(name, if (is.null(names(value))) sprintf("[[%d]]", seq_along(value)) else paste0("$", names(value)))
}
