# Functions that Python names by their R file: r_function() of Python, r/functions.py of the core.

# The environments into which files were sourced, by the hash of the file.
sourced <- new.env(parent = emptyenv())

# Tells the core that R is here.
offer_functions <- function() {
  libraries <- function() paste(.libPaths(), collapse = .Platform$path.sep)
  core(convert = TRUE)$use_r(function_of_file, set_seed_of_job, r_error, R.home(), libraries)
}

set_seed_of_job <- function(seed) {
  keep_random_numbers()
  set.seed(seed)
}

# The function of a file, as Python calls it in this role. The first call sources the file. All functions of
# a file have one environment. If the file makes no such function, the result says what it makes.
function_of_file <- function(file, name, role, digest) {
  if (is.null(sourced[[digest]])) {
    frame <- new.env(parent = globalenv())
    source(file, frame, keep.source = TRUE, encoding = "UTF-8")
    assign(digest, frame, envir = sourced)
  }
  fun <- get0(name, sourced[[digest]], inherits = FALSE)
  if (!is.function(fun)) {
    return(if (is.null(fun)) "nothing of this name" else paste("an object of class", class(fun)[[1L]]))
  }
  reticulate::r_to_py(in_role(fun, role, name))
}

in_role <- function(fun, role, name) {
  if (is_python(fun)) {
    return(fun)
  }
  called <- function(...) traced_interrupt(call_with(fun, ..., .name = name))
  switch(role, data = data_function(called), layer = of_layer(called), called)
}

# Prints what parsing alone says of a function of a file, for the core: a key and a value in each line.
describe_function <- function(args = commandArgs(TRUE)) {
  say <- function(key, value) {
    value <- utils::URLencode(paste(value, collapse = " "), reserved = TRUE)
    cat("tfdistr: ", key, " ", value, "\n", sep = "")
  }
  parsed <- tryCatch(
    parse(args[[1L]], keep.source = FALSE, encoding = "UTF-8"),
    error = function(condition) condition
  )
  if (inherits(parsed, "condition")) {
    return(say("error", conditionMessage(parsed)))
  }
  made <- assigned(as.list(parsed))
  say("functions", names(Filter(is_function_code, made)))
  value <- made[[args[[2L]]]]
  known <- args[[2L]] %in% names(made)
  say("kind", if (!known) {
    if (any(assigning %in% called_names(as.list(parsed)))) "unknown" else "none"
  } else if (is_function_code(value)) {
    "function"
  } else if (is.language(value)) {
    "unknown"
  } else {
    "value"
  })
  arguments <- if (is_function_code(value)) as.list(value[[2L]])
  needed <- vapply(arguments, function(default) is.symbol(default) && !nzchar(default), NA)
  say("required", setdiff(names(arguments)[needed], "..."))
}

# Functions that may make variables which their call does not name.
assigning <- c("source", "sys.source", "load", "attach", "list2env", "eval", "evalq", "makeActiveBinding")

is_function_code <- function(code) {
  is.call(code) && identical(code[[1L]], as.name("function"))
}

# What code assigns outside of functions: a list of the assigned code, by the names of the variables.
assigned <- function(code) {
  found <- list()
  for (call in calls_of(code)) {
    found <- utils::modifyList(found, assigned(as.list(call)), keep.null = TRUE)
    by_name <- function(place) is.symbol(call[[place]]) || is.character(call[[place]])
    if (called_by(call) %in% c("<-", "=", "<<-") && by_name(2L)) {
      found[as.character(call[[2L]])] <- list(call[[3L]])
    } else if (called_by(call) %in% c("assign", "delayedAssign") && is.character(call[[2L]])) {
      found[call[[2L]]] <- list(call[[3L]])
    }
  }
  found
}

# The names of the functions that code calls outside of functions.
called_names <- function(code) {
  unlist(lapply(calls_of(code), function(call) c(called_by(call), called_names(as.list(call)))))
}

# The calls among the parts of code, without the definitions of functions.
calls_of <- function(code) {
  Filter(Negate(is_function_code), code[vapply(code, is.call, NA)])
}

# The name of the function that a call calls, without its package.
called_by <- function(call) {
  head <- call[[1L]]
  if (is.call(head) && identical(head[[1L]], as.name("::"))) head <- head[[3L]]
  if (is.symbol(head)) as.character(head) else ""
}
