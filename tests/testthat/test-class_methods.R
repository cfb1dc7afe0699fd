# Methods and classes of the session, in R functions for workers.

# nolint start: object_usage_linter. The functions of helper-closures.R.
test_that("S3 methods of the session go along, for the classes and the generics that are used", {
  local_globals(
    rate = 10, spec = structure(list(units = 3), class = "tfdistr_spec"),
    build = in_global(function(x) UseMethod("build")),
    build.tfdistr_spec = in_global(function(x) x$units * rate),
    build.default = in_global(function(x) -1),
    summary.tfdistr_spec = in_global(function(object, ...) object$units + 1),
    summary.tfdistr_other = in_global(function(object, ...) stop("not used")),
    toString.numeric = in_global(function(x, ...) "number"), format.numeric = in_global(function(x) rate)
  )
  .S3method("length", "tfdistr_spec", in_global(function(x) 77L))
  withr::defer(rm("length.tfdistr_spec", envir = baseenv()[[".__S3MethodsTable__."]]))
  captured <- capture_functions(list(model = function() {
    made <- structure(list(units = 1), class = "tfdistr_spec")
    list(build(spec), build(1), summary(spec), length(spec), build(made), toString(1))
  }))
  expect_setequal(names(captured$globals), c(
    "rate", "spec", "build", "build.tfdistr_spec", "build.default", "summary.tfdistr_spec", "toString.numeric"
  ))
  expect_identical(result_elsewhere(captured), list(30, -1, 4, 77L, 10, "number"))
  in_frame <- local({
    area <- function(x) UseMethod("area")
    area.numeric <- function(x) x^2 # nolint: object_name_linter.
    function() area(3)
  })
  expect_identical(result_elsewhere(capture_functions(list(model = in_frame))), 9)
})

test_that("methods take along what they use, also registered ones", {
  local_globals(
    show_units = in_global(function(x) UseMethod("show_units")),
    show_units.tfdistr_unit = in_global(function(x) "unit"), # nolint: object_name_linter.
    spec = structure(list(), class = "tfdistr_spec")
  )
  .S3method("rev", "tfdistr_spec", in_global(function(x) show_units(structure(1, class = "tfdistr_unit"))))
  withr::defer(rm("rev.tfdistr_spec", envir = baseenv()[[".__S3MethodsTable__."]]))
  expect_identical(result_elsewhere(capture_functions(list(model = function() rev(spec)))), "unit")
})

test_that("S4 classes, reference classes and their methods go along", {
  before <- ls(globalenv(), all.names = TRUE)
  withr::defer({
    methods::removeGeneric("tfdistr_area", where = globalenv())
    methods::removeMethod("length", "TfdistrShape", where = globalenv())
    for (name in c("TfdistrShape", "TfdistrSquare", "TfdistrCounter")) methods::removeClass(name, globalenv())
    rm(list = setdiff(ls(globalenv(), all.names = TRUE), before), envir = globalenv())
  })
  evalq({
    methods::setClass("TfdistrShape", methods::representation(width = "numeric"))
    methods::setClass("TfdistrSquare", contains = "TfdistrShape")
    methods::setGeneric("tfdistr_area", function(shape) standardGeneric("tfdistr_area"))
    methods::setMethod("tfdistr_area", "TfdistrShape", function(shape) shape@width * tfdistr_rate)
    methods::setMethod("length", "TfdistrShape", function(x) 42L)
    tfdistr_rate <- 7
    tfdistr_square <- methods::new("TfdistrSquare", width = 2)
    tfdistr_counters <- methods::setRefClass(
      "TfdistrCounter",
      fields = list(total = "numeric"),
      methods = list(add = function(by) {
        field("total", total + by * tfdistr_rate)
        total
      })
    )
    tfdistr_counter <- tfdistr_counters$new(total = 1)
  }, globalenv())
  model <- in_global(function() {
    made <- methods::new("TfdistrShape", width = 1)
    c(
      tfdistr_area(tfdistr_square), tfdistr_area(made), length(made),
      tfdistr_counter$add(1), tfdistr_counters$new(total = 5)$add(1)
    )
  })
  captured <- capture_functions(list(model = model))
  expect_identical(result_elsewhere(captured), c(14, 7, 42, 8, 12))
})

test_that("S7 classes and methods go along", {
  skip_if_not_installed("S7")
  named <- function(name) getExportedValue("S7", name)
  local_globals(rate = 6, `define<-` = named("method<-"))
  evalq({
    dogs <- getExportedValue("S7", "new_class")("Dog", properties = list(
      age = getExportedValue("S7", "class_numeric"),
      years = getExportedValue("S7", "new_property")(getter = function(self) attr(self, "age") * rate)
    ))
    speak <- getExportedValue("S7", "new_generic")("speak", "x")
    define(speak, dogs) <- function(x) attr(x, "age") + rate
    define(summary, dogs) <- function(object, ...) 1
    dog <- dogs(age = 3)
  }, globalenv())
  withr::defer(rm("dogs", "speak", "dog", "summary", envir = globalenv()))
  withr::defer(rm("summary.Dog", envir = baseenv()[[".__S3MethodsTable__."]]))
  prop <- named("prop")
  model <- function() c(prop(dog, "years"), speak(dog), summary(dog), prop(dogs(age = 1), "years"))
  expect_identical(result_elsewhere(capture_functions(list(model = model))), c(18, 9, 1, 6))
})

test_that("workers load the packages that have methods for a class", {
  skip_if_not_installed("tibble")
  table <- getExportedValue("tibble", "tibble")(a = 1:3)
  captured <- capture_functions(list(model = function() table))
  expect_true("tibble" %in% captured$loaded)
  expect_false("tibble" %in% capture_functions(list(model = function() mtcars))$loaded)
  skip_if_not_installed("data.table")
  rows <- getExportedValue("data.table", "data.table")(a = 1:3)
  model <- function() nrow(rows[eval(quote(a > 1))])
  environment(model) <- list2env(list(rows = rows), parent = globalenv())
  expect_true("data.table" %in% capture_functions(list(model = model))$loaded)
})
# nolint end
