test_that("the digits come as arrays and as a dataset", {
  digits <- load_dataset("digits", "test")
  expect_snapshot(digits)
  arrays <- digits$arrays()
  expect_identical(dim(arrays[[1L]]), c(360L, 8L, 8L, 1L))
  expect_length(arrays[[2L]], 360L)
  expect_true(all(arrays[[2L]] %in% 0:9))
  dataset <- digits$dataset()
  expect_s3_class(dataset, "tensorflow.python.data.ops.dataset_ops.DatasetV2")
  expect_identical(as.integer(dataset$cardinality()$numpy()), 360L)
  first <- reticulate::iter_next(reticulate::as_iterator(dataset))
  expect_equal(as.array(first[[1L]]$numpy()), array(arrays[[1L]][1L, , , ], c(8, 8, 1)), ignore_attr = TRUE)
  expect_named(load_dataset("digits", supervised = FALSE)$arrays(), c("image", "label"))
})

test_that("files of tables are read by name", {
  folder <- withr::local_tempdir()
  frame <- data.frame(a = c(1, 2.5, -3), b = 4:6, word = c("x", "y", "z"), label = c(0L, 1L, 0L))
  write.csv(frame, file.path(folder, "1.csv"), row.names = FALSE)
  numbers <- load_dataset("csv", files = folder, features = c("a", "b"), target = "label")
  expect_identical(c(numbers$files, numbers$examples), c(file.path(folder, "1.csv"), "3"))
  expect_output(print(numbers), "Data set \"csv\", 3 examples in .*1[.]csv")
  arrays <- numbers$arrays()
  expect_equal(arrays[[1L]], cbind(frame$a, frame$b), ignore_attr = TRUE)
  expect_equal(as.vector(arrays[[2L]]), frame$label)
  named <- load_dataset("csv", files = file.path(folder, "*.csv"), features = "word", matrix = FALSE)$arrays()
  expect_identical(as.vector(named$word), frame$word)
  frame$b[2L] <- NA
  write.csv(frame, file.path(folder, "1.csv"), row.names = FALSE)
  refused <- function(code, message) {
    expect_error(code, message, class = "tfdistr_error_argument", fixed = TRUE)
  }
  refused(load_dataset("csv", files = folder, features = "b"), "Fix: Pass fill = list(b = 0)")
  filled <- load_dataset("csv", files = folder, features = "b", fill = list(b = -1L))$arrays()
  expect_identical(as.vector(filled), c(4, -1, 6))
  refused(load_dataset("digits", files = folder), "has no argument `files`")
})

test_that("records are described by lists", {
  tf <- reticulate::import("tensorflow")
  file <- withr::local_tempfile(fileext = ".tfrecord")
  writer <- tf$io$TFRecordWriter(file)
  for (number in 1:3) {
    x <- tf$train$Feature(float_list = tf$train$FloatList(value = as.list(number + 0:3)))
    y <- tf$train$Feature(int64_list = tf$train$Int64List(value = list(number)))
    features <- tf$train$Features(feature = list(x = x, y = y))
    writer$write(tf$train$Example(features = features)$SerializeToString())
  }
  writer$close()
  features <- list(x = list(shape = c(2, 2), dtype = "float32"), y = "int64")
  arrays <- load_dataset("tfrecord", files = file, features = features, target = "y")$arrays()
  expect_identical(dim(arrays[[1L]]), c(3L, 2L, 2L))
  expect_equal(as.vector(arrays[[2L]]), 1:3)
})

# What R's value is in Python: its type, its shape and its values.
in_python <- function(value, convert = python_data) {
  array <- reticulate::import("tfdistr.data.source", convert = FALSE)$as_arrays(convert(value, "x"), "x")
  shape <- as.integer(reticulate::py_to_r(array$shape))
  list(reticulate::py_str(array$dtype), shape, reticulate::py_to_r(array$tolist()))
}

test_that("tables and columns of nanoarrow are read by Arrow's C interface", {
  skip_if_not_installed("nanoarrow")
  frame <- data.frame(a = 1:2, b = c(0.5, 1))
  table <- nanoarrow::as_nanoarrow_array(frame)
  expect_identical(in_python(table), in_python(frame))
  expect_identical(as.data.frame(table), frame) # it can be read again, unlike a stream
  expect_identical(in_python(nanoarrow::as_nanoarrow_array(c(0.5, 1))), list("float64", 2L, c(0.5, 1)))
  text <- nanoarrow::as_nanoarrow_array_stream(data.frame(a = c("x", "\u00e9"), b = factor(c("u", "v"))))
  columns <- reticulate::py_to_r(python_data(text, "x")$to_pydict())
  expect_identical(columns, list(a = c("x", "\u00e9"), b = c("u", "v")))
  refused <- function(value, message) {
    expect_error(python_data(value, "x"), message, fixed = TRUE, class = "tfdistr_error_argument")
  }
  refused(text, "Received: a stream: Cannot import released Arrow Stream")
})

test_that("tables, columns and readers of arrow are read by Arrow's C interface", {
  skip_if_not_installed("arrow")
  frame <- data.frame(a = 1:2, b = c(0.5, 1))
  table <- arrow::as_arrow_table(frame)
  for (value in list(table, arrow::as_record_batch(frame), arrow::as_record_batch_reader(table))) {
    expect_identical(in_python(value), in_python(frame))
  }
  expect_identical(in_python(table$b), list("float64", 2L, c(0.5, 1)))
  expect_error(python_data(arrow::InMemoryDataset$create(table), "x"), class = "tfdistr_error_argument")
})

test_that("lists become tuples or dictionaries, data sets and Python objects stay what they are", {
  expect_identical(
    reticulate::py_str(python_data(list(1L, 2:3), "x")),
    "(array([1], dtype=int32), array([2, 3], dtype=int32))"
  )
  expect_identical(names(reticulate::py_to_r(python_data(list(b = 1L, a = 2L), "x"))), c("b", "a"))
  array <- reticulate::np_array(1:3)
  expect_identical(python_data(array, "x"), array)
  expect_s3_class(python_data(load_dataset("digits"), "x"), "tfdistr.data.datasets.Dataset")
  expect_null(python_data(NULL, "x"))
  validation <- python_validation(list(c(1, 2), factor(c("a", "b"))))
  expect_s3_class(validation, "python.builtin.tuple")
  classes <- validation[[1L]]
  expect_identical(as.vector(reticulate::py_to_r(classes$numbers)), 0:1)
  expect_identical(reticulate::py_to_r(classes$names), list("a", "b"))
  expect_s3_class(python_validation(list(a = 1, b = 2)), "python.builtin.dict")
})

test_that("what can't be an array is an error that names the part", {
  refused <- function(value, message, convert = python_data) {
    expect_error(convert(value, "x"), message, fixed = TRUE, class = "tfdistr_error_argument")
  }
  refused(
    structure(list(), class = c("FileSystemDataset", "Dataset", "ArrowObject", "R6")),
    "Convert it with arrow::as_arrow_table(), or pass load_dataset(\"parquet\", files = dataset$files)."
  )
  refused(structure(list(), class = "arrow_dplyr_query"), "Convert it with dplyr::compute().")
  refused(structure(list(), class = "Array"), "Received: an object of class Array") # not of arrow
  refused(Sys.Date(), "`x` must hold numbers, logical values, text or a factor.")
  refused(data.frame(when = Sys.time()), "`x$when` must hold numbers")
  refused(c(1L, NA), "`x` must not have missing values.")
  refused(list(a = c(TRUE, NA)), "`x$a` must not have missing values")
  refused(data.frame(f = factor(c("a", NA))), "`x$f` must not have missing values")
  refused(factor(c("a", NA)), "`x` must not have missing values", python_targets)
  refused(c(1.5, NA), "Received: 1 missing of 2", python_weights)
  refused(list(a = c(1.5, NA)), "`x$a` must not have missing values", python_weights)
  validation <- function(value, name) python_validation(list(1, 1, value), NULL)
  refused(c(1.5, NA), "`validation_data[[3]]` must not have missing values", validation)
  refused(as.POSIXlt(Sys.time()), "Fix: Convert it with as.numeric(as.POSIXct()), which gives seconds since")
  refused(ts(matrix(1:4, 2)), "Fix: Convert it with unclass().")
  refused(matrix(1i), "Received: an object of class complex")
  refused(array(as.raw(1), c(1, 1, 1)), "Received: an object of class raw")
  columns <- data.frame(a = 1)
  columns$frame <- data.frame(b = 1)
  refused(columns, "Fix: Convert it with tidyr::unpack()")
  columns$frame <- list(1)
  refused(columns, "Fix: Convert it with tidyr::unnest_wider() or unlist()")
  unknown <- "caf\xe9"
  Encoding(unknown) <- "UTF-8"
  refused(c("a", unknown), "`x` must hold text whose encoding R knows.")
  refused(c("a", unknown), "whose bytes are not text in its encoding")
  Encoding(unknown) <- "bytes"
  refused(unknown, "Fix: Read it with the right encoding, or convert it by iconv(x, \"latin1\", \"UTF-8\")")
  refused(list(a = 1, a = 2), "`x` must have a different name for each of its parts.")
  refused(data.frame(a = 1, a = 2, check.names = FALSE), "Received: the name 'a' more than once")
})

test_that("text of other encodings is the same text", {
  text <- "caf\xe9"
  Encoding(text) <- "latin1"
  expect_identical(in_python(c(text, "\u00e9"))[[3L]], c("caf\u00e9", "\u00e9"))
})

test_that("whole numbers that R's integers do not have are doubles", {
  expect_identical(steps_per_epoch(100, 32), 4L)
  expect_identical(steps_per_epoch(1e11, 1), 1e11)
  expect_error(
    steps_per_epoch(2^60, 1), "R cannot represent a whole number of the result above 2^53.",
    fixed = TRUE, class = "tfdistr_error_argument"
  )
  numpy <- reticulate::import("numpy", convert = FALSE)
  expect_identical(as.vector(values_for_r(numpy$array(list(-2^31, 1))$astype("int32"))), c(-2^31, 1))
})

test_that("functions whose code returns lists are generators", {
  code <- c(
    "list(1, 2)", "{ x <- 1; list(x) }", "if (ctx) list(1)", "return((list(1)))",
    "{ batch <- list(1); if (ctx) NULL else batch }",
    "ctx$shard(1)", "{ list(1); dataset }", "NULL", "{}", "ctx"
  )
  functions <- lapply(code, \(body) eval(str2lang(paste("function(ctx)", body))))
  expect_identical(vapply(functions, is_generator, NA), rep(c(TRUE, FALSE), each = 5L))
})

test_that("a generator for several workers needs the number of its batches before they start", {
  generator <- function() list(matrix(1), 1)
  train <- function(...) distributed_fit(small_model, generator, cluster = local_cluster(2), ...)
  needed <- "need `steps_per_epoch`.*Fix: Pass steps_per_epoch = 100"
  expect_error(train(), needed, class = "tfdistr_error_argument")
  validated <- function() train(steps_per_epoch = 1, validation_data = generator)
  expect_error(validated(), "need `validation_steps`", class = "tfdistr_error_argument")
})

test_that("text as labels is refused, and a factor is numbers", {
  model <- function() {
    keras <- reticulate::import("keras")
    made <- keras$Sequential(list(keras$layers$Dense(3L, "softmax")))
    made$compile("adam", "sparse_categorical_crossentropy")
    made
  }
  expect_error(
    distributed_fit(model, iris[, 1:4], as.character(iris$Species), verbose = 0),
    "The labels must be numbers",
    class = "tfdistr_error_argument"
  )
  fit <- distributed_fit(model, iris[, 1:4], iris$Species, seed = 1, verbose = 0)
  expect_lt(fit$history$loss, 5)
  # Text in files has the classes of a factor.
  folder <- withr::local_tempdir()
  csv <- function(rows) {
    file <- file.path(folder, paste0(nrow(rows), ".csv"))
    write.csv(rows, file, row.names = FALSE)
    load_dataset("csv", files = file, target = "Species")
  }
  flowers <- csv(iris)
  expect_identical(flowers$class_names, levels(iris$Species))
  weights <- c(setosa = 1, virginica = 2)
  train <- function(...) distributed_fit(model, ..., seed = 1, verbose = 0, class_weight = weights)
  fit <- train(flowers, validation_data = csv(iris[101:150, ]))
  later <- list(iris[101:150, 1:4], iris$Species[101:150])
  expect_identical(fit$history, train(iris[, 1:4], iris$Species, validation_data = later)$history)
  expect_identical(evaluate(fit, csv(iris[101:150, ])), evaluate(fit, later[[1]], later[[2]]))
  expect_identical(levels(predict(fit, iris[, 1:4], type = "class")), levels(iris$Species))
})

test_that("the parts of validation data may have names, and problems are named", {
  x <- data.frame(a = runif(8), b = runif(8))
  y <- runif(8)
  train <- function(...) distributed_fit(small_model, ..., seed = 1, verbose = 0)
  by_name <- train(x, y, validation_data = list(y = y, x = x))
  expect_identical(by_name$history, train(x, y, validation_data = list(x, y))$history)
  refused <- function(code, ...) {
    error <- expect_error(code, class = "tfdistr_error_argument")
    expect_identical(rlang::call_name(conditionCall(error)), "distributed_fit")
    for (part in c(...)) expect_match(conditionMessage(error), part, fixed = TRUE)
  }
  refused(train(x, y, validation_data = x), "must have targets")
  dated <- transform(x, b = Sys.Date())
  refused(train(dated, y), "`x$b` must hold numbers", "class Date")
  refused(train(x, y, validation_data = list(dated, y)), "`validation_data[[1]]$b` must hold numbers")
  text <- list(transform(x, b = "u"), y)
  refused(train(x, y, validation_data = text), "x$a of numbers, x$b of text, where `x` has x of numbers")
  refused(train(text[[1]], y), "'a', 'b', where the model takes one array", "Convert the text in 'b'")
  expect_error(predict(by_name, text[[1]]), "newdata\\$a: .*with text in newdata\\$b")
  refused(train(x, c(NA, y[-1])), "`y` must not have missing values", "Received: 1 missing of 8")
  holed <- list(x, c(NA, y[-1]))
  refused(train(x, y, validation_data = holed), "`validation_data[[2]]` must not have missing values")
  expect_silent(python_targets(c(NaN, 1), "y"))
})
