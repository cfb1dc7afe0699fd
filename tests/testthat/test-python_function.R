# Functions of Python files in jobs of R. What Python checks is in tests/python/utils/test_function_files.py.

python_file <- function(..., frame = parent.frame()) {
  file <- withr::local_tempfile(fileext = ".py", .local_envir = frame)
  writeLines(c(
    "import keras, sys", "",
    "def build():",
    "    print('R is here:', 'rpytools' in sys.modules)",
    "    model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(10, 'softmax')])",
    "    model.compile('sgd', 'sparse_categorical_crossentropy')",
    "    return model", ...
  ), file)
  file
}

has_r <- function(fit) {
  logs <- lapply(fit$workers$log, readLines)
  vapply(logs, function(log) any(grepl("R is here: True", log)), NA)
}

test_that("what is wrong with the file or the name is said at once", {
  file <- python_file()
  # By hand, as versions of testthat show errors differently.
  said <- function(code) cat(conditionMessage(expect_error(code, class = "tfdistr_error_argument")))
  expect_snapshot(said(python_function(3, "build")))
  expect_snapshot(said(python_function(file, "biuld")), transform = function(lines) {
    gsub("/.*[.]py", "<file>.py", lines)
  })
  expect_error(
    python_function(python_file("def other(:"), "build"), "line 8: invalid syntax",
    class = "tfdistr_error_argument"
  )
  expect_error(
    distributed_fit(python_function(python_file("def sized(units, rate=1): pass"), "sized"), matrix(1), 1),
    "can be called without arguments.*'sized' of .*, which needs 'units'",
    class = "tfdistr_error_argument"
  )
})

test_that("workers are Python processes, and have the bits of the same model in R", {
  data <- some_digits()
  cluster <- local_cluster(2)
  build <- python_function(python_file(), "build")
  in_python <- distributed_fit(build, data$x, data$y, cluster = cluster, epochs = 2, seed = 5)
  in_r <- distributed_fit(small_model, data$x, data$y, cluster = cluster, epochs = 2, seed = 5)
  expect_identical(has_r(in_python), c(FALSE, FALSE))
  expect_identical_fits(in_python, in_r)
  expect_identical(predict(in_python, data$x), predict(in_r, data$x))
})

test_that("with an R function among the arguments, the workers are R processes", {
  data <- some_digits()
  file <- python_file()
  fit <- distributed_fit(
    python_function(file, "build"), data$x, data$y, cluster = local_cluster(1), seed = 5,
    callbacks = function() list()
  )
  expect_identical(has_r(fit), TRUE)
  expect_identical_fits(fit, distributed_fit(small_model, data$x, data$y, seed = 5))
})

test_that("a saved fit makes its model by the file, which must be as it was", {
  skip_slow("two more sessions")
  data <- some_digits()
  file <- python_file()
  fit <- distributed_fit(python_function(file, "build"), data$x, data$y, seed = 5)
  expected <- predict(fit, data$x)
  saved <- withr::local_tempfile(pattern = c("fit", "x", "y"))
  Map(saveRDS, list(fit, data$x, expected), saved)
  session <- function(code) {
    script <- withr::local_tempfile(fileext = ".R", lines = c(
      "library(tfdistr)", sprintf("%s <- readRDS('%s')", c("fit", "x", "y"), saved), code
    ))
    run <- start_script(script)
    run$process$wait(120000)
    run$output()
  }
  expect_match(session("cat(identical(predict(fit, x), y), '\\n')"), "TRUE $")
  cat("# changed\n", file = file, append = TRUE)
  expect_match(
    session("tryCatch(fit$model, tfdistr_error_argument = function(e) message(conditionMessage(e)))"),
    "A function of a file needs its file, unchanged.*which has changed since 'build' was named"
  )
})

test_that("parsing says what a function of an R file is", {
  said <- function(code, name = "build") {
    file <- withr::local_tempfile(lines = code)
    lines <- utils::capture.output(describe_function(c(file, name)))
    found <- sub("^tfdistr: ", "", lines)
    rlang::set_names(utils::URLdecode(sub("^\\w+ ", "", found)), sub(" .*", "", found))
  }
  expect_identical(said("build <- function(a, b = 1, ...) a")[["required"]], "a")
  expect_identical(said("x[, 1]; y <- 2; build <- \\(x) x")[["kind"]], "function")
  expect_identical(said("build <- y[, 1]")[["kind"]], "unknown")
  expect_identical(said("load('all.rda')")[["kind"]], "unknown")
  none <- said("f <- function() build <- function() 1")
  expect_identical(none[c("functions", "kind")], c(functions = "f", kind = "none"))
  expect_match(said("build <- function( {")[["error"]], ":1:20: unexpected '{'", fixed = TRUE)
})

test_that("a name that is no function when the file was sourced is told to the core", {
  file <- withr::local_tempfile(lines = c("build <- identity(3)", "mean <- identity(mean)"))
  # The core raises the error with these words.
  expect_identical(function_of_file(file, "build", "model", "a hash"), "an object of class numeric")
  expect_identical(function_of_file(file, "none", "model", "a hash"), "nothing of this name")
})
