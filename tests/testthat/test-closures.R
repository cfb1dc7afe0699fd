test_that("functions of the global environment take along what they use of it, also indirectly", {
  local_globals(
    scale_by = 3, not_used = 4,
    data = data.frame(a = 1:3),
    helper = in_global(function(x) x * scale_by),
    recursive = in_global(function(n) if (n > 0) recursive(n - 1) else nrow(data))
  )
  model <- in_global(function() helper(2) + recursive(2))
  captured <- capture_functions(list(model = model, callbacks = NULL))
  expect_setequal(names(captured$globals), c("helper", "scale_by", "recursive", "data"))
  expect_null(captured$functions$callbacks)
  expect_identical(captured$packages, sub("^package:", "", grep("^package:", rev(search()), value = TRUE)))

  result <- result_elsewhere(captured)
  expect_identical(result, 9)
})

test_that("functions of a saved fit leave the global environment of the session as it is", {
  local_globals(width = 3, helper = in_global(function() width))
  packed <- pack_functions(list(model = in_global(function() helper() + 1)))
  list2env(list(width = 100, helper = NULL), globalenv())
  model <- unpack_functions(packed)$model
  expect_identical(model(), 4)
  expect_identical(mget(c("width", "helper"), envir = globalenv()), list(width = 100, helper = NULL))
  expect_identical(result_elsewhere(capture_functions(list(model = model))), 4)
})

test_that("of the frames around a function only what is used goes along", {
  make <- function(width, not_given, ...) {
    large <- raw(1e6)
    not_sendable <- reticulate::import("threading")$Lock()
    used <- list(twice = function(x) 2 * x * width)
    itself <- function(n) if (n > 0) itself(n - 1) else used$twice(1)
    function() if (itself(3) > 0) itself(3) + sum(...) else not_given
  }
  captured <- capture_functions(list(model = make(5, , 1, 2)))
  expect_lt(length(serialize(captured, NULL)), 5e5)
  frame <- environment(captured$functions$model)
  expect_setequal(ls(frame), c("itself", "used", "width", "not_given"))
  expect_identical(captured$functions$model(), 13)
  expect_identical(environment(frame$itself), frame)
  expect_identical(unserialize(serialize(captured, NULL))$functions$model(), 13)
})

test_that("objects, formulas and functions of packages go along", {
  local_globals(offset = 10)
  counter <- new.env()
  counter$add <- in_global(function(x) x + offset)
  formula <- y ~ x
  captured <- capture_functions(list(model = function() {
    list(counter$add(1), coef(lm(formula, data.frame(x = 1:3, y = 2:4)))[["x"]], stats::median(1:3))
  }))
  expect_identical(captured$globals, list(offset = 10))
  expect_equal(unserialize(serialize(captured, NULL))$functions$model(), list(11, 1, 2))
})

# An S4 object with a value.
holder_of <- function(value, frame = parent.frame()) {
  methods::setClass("TfdistrHolder", methods::representation(held = "ANY"), where = globalenv())
  withr::defer(methods::removeClass("TfdistrHolder", where = globalenv()), envir = frame)
  methods::new("TfdistrHolder", held = value)
}

test_that("formulas and the classes of R6 take along what they name, also functions", {
  new_class <- getExportedValue("R6", "R6Class") # testthat needs R6
  public <- list(times = in_global(function(x) x * factor_of_test))
  not_used <- file(withr::local_tempfile(), "w")
  withr::defer(close(not_used))
  local_globals(
    factor_of_test = 3, twice = in_global(function(x) 2 * x), not_used = not_used,
    Parent = new_class("Parent", public = public, parent_env = globalenv())
  )
  child <- new_class("Child", inherit = Parent, parent_env = globalenv())
  formula <- ~ twice(.x)
  empty <- formals(function(x) NULL)
  captured <- capture_functions(list(model = function() {
    apply_both <- function(...) vapply(list(...), function(each) rlang::as_function(each)(5), 0)
    c(apply_both(formula, ~ .x + factor_of_test), child$new()$times(length(empty)))
  }))
  expect_setequal(names(captured$globals), c("factor_of_test", "twice", "Parent"))
  expect_identical(result_elsewhere(captured), c(10, 8, 3))
})

test_that("functions in list columns and in S4 objects take along what they use", {
  local_globals(offset = 10, width = 5)
  table <- data.frame(a = 1)
  table$fun <- list(in_global(function() offset))
  object <- holder_of(in_global(function() width))
  captured <- capture_functions(list(model = function() table$fun[[1L]]() + object@held()))
  expect_setequal(names(captured$globals), c("offset", "width", ".__C__TfdistrHolder"))
  expect_identical(result_elsewhere(captured), 15)
})

test_that("what texts and code in variables name goes along", {
  local_globals(
    offset = 2, add = in_global(function(x) x + offset), code = quote(add(5)), width = 4, depth = 6
  )
  model <- in_global(function() {
    c(do.call("add", list(1)), sapply(1, "add"), eval(code), get("width"), eval(quote(depth)))
  })
  captured <- capture_functions(list(model = model))
  expect_setequal(names(captured$globals), c("offset", "add", "code", "width", "depth"))
  expect_identical(result_elsewhere(captured), c(3, 3, 7, 4, 6))
})

test_that("code that reads its frame by parent.env() takes the frame along, as far as it can be sent", {
  twice <- local({
    factor <- 2
    function(x) x * parent.env(environment())$factor
  })
  expect_identical(result_elsewhere(capture_functions(list(model = function() twice(4)))), 8)
  skip_if_not_installed("memoise")
  cached <- getExportedValue("memoise", "memoise")(twice) # its cache is an external pointer
  expect_error(
    capture_functions(list(model = function() cached(4))),
    "Received: an object of class externalptr, which `cached` uses", class = "tfdistr_error_argument"
  )
})

test_that("an environment of which a function changes a part goes along", {
  counter <- new.env()
  counter$calls <- 1
  values <- c(1, 2)
  own <- "not used"
  count <- function(given) {
    own <- list()
    own$calls <- 1
    given$calls <- 2
    counter$calls <- counter$calls + own$calls
    values[[2]] <- 5
    counter$calls + sum(values)
  }
  captured <- capture_functions(list(model = function() count(list())))
  expect_setequal(ls(environment(captured$functions$model)), c("count", "counter", "values"))
  expect_identical(unserialize(serialize(captured, NULL))$functions$model(), 8)
})

test_that("a variable of the global environment does not hide a function of the same name", {
  local_globals(c = 1)
  captured <- capture_functions(list(model = in_global(function() c(1, 2))))
  expect_identical(captured$globals, list())
})

test_that("what attach() put on the search path goes along as well", {
  attach(list(attached_value = 7), name = "tfdistr_test")
  withr::defer(detach("tfdistr_test", character.only = TRUE))
  captured <- capture_functions(list(model = in_global(function() attached_value)))
  expect_identical(captured$globals, list(attached_value = 7))
})

test_that("Python's objects go along the way Python knows, convertible as they were", {
  json <- reticulate::import("json")
  raw_json <- reticulate::import("json", convert = FALSE)
  held <- reticulate::import("collections")$OrderedDict
  run_dir <- withr::local_tempdir()
  set.seed(5)
  functions <- list(
    model = function() list(json$dumps(list(1L)), class(raw_json$dumps(1L)), held, runif(1)),
    data = function(ctx) reticulate::r_to_py(ctx)
  )
  save_functions(functions, 9L, run_dir)
  expect_identical(unname(file.mode(file.path(run_dir, "job.rds"))), as.octmode("600"))
  expect_identical(unname(file.mode(file.path(run_dir, "objects.pkl"))), as.octmode("600"))

  withr::local_preserve_seed()
  loaded <- worker_functions(run_dir)
  expect_named(loaded, job_functions)
  expect_identical(reticulate::py_to_r(loaded$data("the context")), "the context")
  result <- loaded$model()
  expect_identical(result[[1L]], "[1]")
  expect_identical(result[[2L]], c("python.builtin.str", "python.builtin.object"))
  expect_identical(reticulate::py_id(result[[3L]]), reticulate::py_id(held))
  expect_identical(result[[4L]], {
    set.seed(9)
    runif(1)
  })
})

test_that("a Python object that can't be sent, and is used, is an error", {
  lock <- reticulate::import("threading")$Lock()
  expect_error(
    with_conditions(save_functions(list(model = function() lock$locked()), 1L, withr::local_tempdir())),
    "Cannot serialize the job for the workers.*Received: an object of class _thread.lock: TypeError",
    class = "tfdistr_error_argument"
  )
})

test_that("a class like those of keras3 is made again, from the parts of its frame", {
  new_class <- function(classname, members, inherit = quote(base), private = list(),
                        parent_env = globalenv()) {
    force(members)
    delayedAssign(classname, members$make(private))
    delayedAssign("__class__", get(classname))
    as.function(list(as.name(classname)))
  }
  suffix <- "thing"
  make <- function(private) paste(Sys.getpid(), suffix, private$word)
  wrapper <- new_class("Thing", list(make = make), private = list(word = "w"))
  expect_identical(wrapper(), paste(Sys.getpid(), "thing w"))
  there <- result_elsewhere(capture_functions(list(model = wrapper)))
  expect_match(there, "^[0-9]+ thing w$")
  expect_false(startsWith(there, paste0(Sys.getpid(), " ")))
})

# A package with a state, in a library of its own, for as long as the test runs.
local_package <- function(name, code, frame = parent.frame()) {
  folder <- withr::local_tempdir(.local_envir = frame)
  dir.create(file.path(folder, "source", "R"), recursive = TRUE)
  writeLines(c(paste("Package:", name), "Version: 1.0"), file.path(folder, "source", "DESCRIPTION"))
  writeLines("exportPattern('^[a-z]')", file.path(folder, "source", "NAMESPACE"))
  writeLines(code, file.path(folder, "source", "R", "code.R"))
  source <- file.path(folder, "source")
  arguments <- c("CMD", "INSTALL", "--no-test-load", paste0("--library=", folder), source)
  system2(file.path(R.home("bin"), "R"), arguments, stdout = FALSE, stderr = FALSE)
  withr::local_envvar(R_LIBS = paste(c(folder, .libPaths()), collapse = ":"), .local_envir = frame)
  loadNamespace(name, folder)
  withr::defer(unloadNamespace(name), envir = frame)
}

test_that("the state of a package goes along, where a function of the job reads it", {
  local_package("tfdistrStateful", c(
    "settings <- new.env(); settings$units <- 5L; settings$gone <- TRUE; settings$open <- NULL",
    "limit <- 1",
    ".onLoad <- function(...) {",
    "makeActiveBinding('time', function() as.numeric(Sys.time()), topenv())",
    "makeActiveBinding('now', function() time, settings)",
    "}",
    "counter <- local({ count <- 0; function(by = 0) count <<- count + by })",
    "set <- function(units) {",
    "settings$units <- units; settings$open <- textConnection('a'); rm('gone', envir = settings)",
    "}",
    "read <- function() {",
    "stopifnot(settings$now <= time)",
    "c(settings$units, limit, counter(), exists('gone', settings), is.null(settings$open))",
    "}"
  ))
  # Of text: R CMD check looks on CRAN for a package that code names.
  by_name <- eval(parse(text = "function() tfdistrStateful::read()", keep.source = FALSE))
  own <- getExportedValue("tfdistrStateful", "read")
  expect_length(capture_functions(list(model = by_name))$state, 0L)
  expect_identical(result_elsewhere(capture_functions(list(model = by_name))), c(5, 1, 0, 1, 1))

  getExportedValue("tfdistrStateful", "set")(8L)
  getExportedValue("tfdistrStateful", "counter")(3)
  utils::assignInNamespace("limit", 2, "tfdistrStateful")
  # A connection does not go along: each process has its own.
  expect_identical(result_elsewhere(capture_functions(list(model = own))), c(8, 2, 3, 0, 1))
  expect_identical(result_elsewhere(capture_functions(list(model = by_name))), c(8, 2, 3, 0, 1))
})

test_that("connections and external pointers are refused by the name of their variable", {
  place <- file(withr::local_tempfile(), "w")
  withr::defer(close(place))
  holder <- new.env()
  holder$places <- list(1, place)
  refused <- function(fun, name) {
    expect_error(
      capture_functions(list(model = fun)), paste0("`", name, "`, which a function for the workers uses"),
      class = "tfdistr_error_argument", fixed = TRUE
    )
  }
  refused(function() writeLines("a", place), "place")
  refused(function() writeLines("a", holder$places[[2L]]), "holder$places[[2]]")
  pointer <- methods::new("externalptr")
  refused(function() identity(pointer), "pointer")
  object <- holder_of(pointer)
  refused(function() object@held, "object@held")
  expect_true(is_bound(object))
  output <- stderr() # each process has its own
  expect_named(capture_functions(list(model = function() cat("a", file = output)))$functions, "model")
})
