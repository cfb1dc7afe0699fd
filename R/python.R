# Which Python is used, and the Python core that this package carries. Only R has this.

# The imported core, without and with conversion to R.
doors <- new.env(parent = emptyenv())

# The process that may use TensorFlow, if this one has used the core.
user <- new.env(parent = emptyenv())

# Recommends a Python to reticulate, without starting it. RETICULATE_PYTHON, use_python() and an active
# virtual environment come before the Python that `make setup` recorded, and the environment of
# install_tfdistr(). If there is none of them, reticulate makes an environment from py_require().
recommend_python <- function() {
  recorded <- setup_record("Python")
  if (!is.na(recorded)) {
    reticulate::use_python(recorded, required = FALSE)
  } else if (reticulate::virtualenv_exists("r-tfdistr")) {
    reticulate::use_virtualenv("r-tfdistr", required = FALSE)
  }
  wanted <- python_requirements(has_nvidia_card())
  reticulate::py_require(packages = wanted$packages, python_version = wanted$python_version)
  constrain_uv()
}

# Chooses what TensorFlow reads while it is loaded, its kernels and log level, also where another package
# loads it. An error is for the first call of the core.
prepare_python <- function(...) {
  try(core(), silent = TRUE)
}

# A file of the installed package; also works while the package is being loaded.
package_file <- function(...) {
  file.path(getNamespaceInfo(topenv(), "path"), ...)
}

# `make setup` leaves a file in the installed package that says which Python it made.
setup_record <- function(field) {
  path <- package_file("setup.dcf")
  if (file.exists(path)) read.dcf(path, field)[[1L]] else NA_character_
}

# The Python module `tfdistr.bridge`, which has all that this package calls. It converts to R only for objects
# that the user gets. It is imported on first use, from the copy in this package, so that both sides have the
# same version.
core <- function(convert = FALSE) {
  door <- if (convert) "converts" else "plain"
  if (is.null(doors[[door]])) {
    first <- !length(ls(doors))
    if (first) import_core()
    user$pid <- user$pid %||% Sys.getpid()
    doors[[door]] <- reticulate::import("tfdistr.bridge", convert = convert)
    if (first) {
      core()$ignore_sigpipe()
      core()$quiet_tensorflow()
      core()$log_in_r()
      core()$warn_by(function(message, category = NULL) {
        hold_jumps(warn_user(reticulate::py_to_r(message), category = reticulate::py_to_r(category)))
      })
      offer_functions()
      end_with_session()
    }
  }
  if (user$pid != Sys.getpid()) refuse_fork()
  structure(list(module = doors[[door]]), class = "tfdistr_core")
}

# TensorFlow's threads do not survive a fork, such as that of mclapply(): the next call would never return.
refuse_fork <- function() {
  if ("tensorflow" %in% names(reticulate::import("sys")$modules)) {
    abort(
      "error", "Cannot use TensorFlow in a fork of a process that has loaded it.",
      received = sprintf("process %d, a fork of %d, such as mclapply() makes", Sys.getpid(), user$pid),
      fix = "Use new processes: parallel::parLapply(), or future::plan(\"multisession\").",
      call = NULL
    )
  }
}

# A name of the core. It is loaded by a call first: reticulate loses an interrupt that comes while Python
# looks for an attribute, and may then end R. A function or class gets its arguments as Python can hold them.
# As in reticulate, it has the attributes of the Python object.
#' @export
`$.tfdistr_core` <- function(x, name) {
  module <- .subset2(x, "module")
  module$load(name)
  value <- do.call("$", list(module, name))
  if (!is.function(value)) {
    return(value)
  }
  called <- function(...) do.call(value, lapply(list(...), plain_argument), quote = TRUE)
  attributes(called) <- attributes(value)
  called
}

# Calls a function of the core with the arguments of the R function that calls this, by their names.
call_core <- function(name, convert = TRUE, call = rlang::caller_env(), of = rlang::caller_fn()) {
  call_with_arguments(name, arguments_of(of, call), convert, call)
}

# The arguments of a call of a function. One that is absent, and has no default, is an error.
arguments_of <- function(of, call) {
  arguments <- mget(as.character(setdiff(names(formals(of)), "...")), envir = call)
  absent <- names(arguments)[vapply(arguments, rlang::is_missing, NA)]
  if (length(absent)) {
    abort(
      "argument", sprintf("`%s` must have a value.", absent[[1L]]),
      received = "no value", fix = sprintf("Pass %s = ...", absent[[1L]]), call = call
    )
  }
  arguments
}

call_with_arguments <- function(name, arguments, convert = TRUE, call = rlang::caller_env()) {
  mappings <- intersect(
    c("env", "options", "resources_per_worker", "runtime_env", "placement"), names(arguments)
  )
  texts <- intersect(c("hosts", "setup", "devices"), names(arguments))
  arguments[mappings] <- lapply(arguments[mappings], as_mapping)
  arguments[texts] <- lapply(arguments[texts], as_texts)
  # The job takes the function to the workers.
  if (is_r_function(arguments$placement)) arguments$placement <- core()$FunctionByName("placement")
  with_conditions(call = call, do.call(do.call("$", list(core(convert), name)), arguments, quote = TRUE))
}

# An argument without what reticulate would change into another value: NA, the class of a vector, names that a
# list has twice. The core refuses what stands in their place; see ValueOfR there.
plain_argument <- function(value) {
  if (is_python(value) || is.function(value) || is.null(value) || is.environment(value)) {
    value
  } else if (inherits(value, "tfdistr_description")) {
    python_description(value)
  } else if (inherits(value, "AsIs")) {
    plain_argument(unclass(value))
  } else if (is.list(value) && !is.object(value)) {
    plain_list(value)
  } else if (is.factor(value) || is.character(value)) { # text of a class, such as a path of the package fs
    plain_vector(as.character(value))
  } else if (is.object(value) || !is.atomic(value)) {
    value_of_r(paste("an object of class", class(value)[[1L]]))
  } else {
    plain_vector(value)
  }
}

plain_list <- function(value) {
  names <- names(value)
  twice <- names[duplicated(names)]
  if (length(twice)) {
    value_of_r(sprintf("a list with the name '%s' more than once", twice[[1L]]))
  } else {
    lapply(value, plain_argument)
  }
}

# A missing number of type double is NaN in Python, but as an argument alone it is as missing as other values.
plain_vector <- function(value) {
  missing <- is.na(value) & !is.nan(value)
  if (!any(missing) || is.double(value) && length(value) > 1L) {
    value
  } else if (is.null(dim(value)) && length(value) > 1L) {
    lapply(value, plain_vector)
  } else {
    value_of_r(if (length(value) == 1L) "NA" else "an array with missing values")
  }
}

# The R value of a Python object, if R has the same value; else an error of the core.
values_for_r <- function(object) {
  core(convert = TRUE)$for_r(object)
}

# A data frame of the columns that the core gives. None is missing there.
frame_of <- function(columns) {
  missing <- list(
    log = NA_character_, error = NA_character_, local_steps = NA_integer_, dropped = NA_integer_,
    seconds_per_epoch = NA_real_, examples_per_second = NA_real_, loss = NA_real_, norm = NA_real_,
    learning_rate = NA_real_, index = NA_integer_, row_of_file = NA_integer_, step = NA_integer_,
    difference = NA_real_, reason = NA_character_
  )
  fill <- function(values, name) unlist(lapply(values, `%||%`, missing[[name]] %||% NA)) %||% logical()
  if (!is.null(columns)) as.data.frame(Map(fill, columns, names(columns)), optional = TRUE)
}

# A named vector as Python has it.
as_mapping <- function(values) {
  if (is.table(values)) values <- unclass(values)
  if (is.null(names(values)) || is.object(values)) values else as.list(values)
}

# Text as Python has it, a list also if there is one only.
as_texts <- function(values) {
  if (is.character(values) || is.factor(values)) as.list(as.character(values)) else values
}

# A list as a dictionary, also if it is empty. dict() would take a variable of that name for the key.
dictionary <- function(values) {
  reticulate::py_dict(as.list(names(values)), lapply(unname(values), plain_argument))
}

value_of_r <- function(words) {
  core()$ValueOfR(words)
}

# Does what the core does at the end of its process. Since version 1.43, reticulate lets R end without the end
# of Python; if it is told to finalize Python, this may be done already.
end_with_session <- function() {
  end <- function(...) try(core()$run_at_exit(), silent = TRUE)
  reg.finalizer(doors, end, onexit = TRUE)
}

# Evaluates code that makes a strategy. What R packages do when a Python module is imported comes after it:
# keras3 makes a tensor then, and TensorFlow joins no cluster after the first tensor.
before_import_hooks <- function(code) {
  core()$hold_import_hooks()
  on.exit(core()$run_import_hooks())
  code
}

is_python <- function(object) {
  inherits(object, "python.builtin.object")
}

is_none <- function(object) {
  is.null(reticulate::py_to_r(object))
}

import_core <- function() {
  sys <- reticulate::import("sys", convert = FALSE)
  sys$path$insert(0L, package_file("python"))
  imported <- tryCatch(
    reticulate::import("tfdistr", convert = FALSE),
    tfdistr.errors.VersionError = abort_without_core
  )
  check_core_version(reticulate::py_to_r(imported$`__version__`))
}

# The version of Python is wrong, so the core cannot translate its message.
abort_without_core <- function(error) {
  said <- function(name) reticulate::py_to_r(reticulate::py_get_attr(error, name))
  abort("version", said("message"), received = said("received"), fix = said("fix"), call = NULL)
}

# Python may have imported another tfdistr before; two versions do not understand each other.
check_core_version <- function(version, wanted = as.character(utils::packageVersion("tfdistr"))) {
  if (!identical(version, wanted)) {
    abort(
      "version",
      sprintf("The Python package tfdistr must have the version of the R package, %s.", wanted),
      received = sprintf("%s, imported by this Python before the R package asked for it.", version),
      fix = sprintf("restart R and load the R package first, or install %s in both.", wanted),
      call = NULL
    )
  }
  invisible(version)
}

#' What tfdistr runs on
#'
#' Starts Python, if it does not run yet. Gives the versions of R, Python and the packages that matter, and
#' where each comes from. It does not import TensorFlow.
#'
#' The Python is the first of these that exists: the Python of the environment variable `RETICULATE_PYTHON`,
#' of a call of [reticulate::use_python()] or of an active virtual environment; the Python that `make setup`
#' made in a checkout of tfdistr; the virtual environment of [install_tfdistr()]; an environment that
#' reticulate makes with the packages that tfdistr needs (see [reticulate::py_require()]).
#'
#' @return A data frame of class `tfdistr_config` with the character columns `component` ("tfdistr", "R",
#'   "reticulate", "Python", "core", "tensorflow", "keras"), `version` (`NA` if it is not installed) and
#'   `from` (a path; `NA` if it is not installed), and the attribute `chosen_by`: what made reticulate choose
#'   this Python. `core` is the Python part of tfdistr.
#' @examplesIf interactive() || nzchar(Sys.getenv("NOT_CRAN"))
#' tfdistr_config()
#' @export
tfdistr_config <- function() {
  python <- reticulate::py_config()
  rows <- list(
    c("tfdistr", as.character(utils::packageVersion("tfdistr")), package_file()),
    c("R", as.character(getRversion()), R.home()),
    c("reticulate", as.character(utils::packageVersion("reticulate")), find.package("reticulate")),
    c("Python", sub(" .*", "", python$version_string), python$python),
    c("core", core(convert = TRUE)$`__version__`, dirname(core(convert = TRUE)$`__file__`)),
    c("tensorflow", python_package("tensorflow")),
    c("keras", python_package("keras"))
  )
  config <- as.data.frame(do.call(rbind, rows))
  names(config) <- c("component", "version", "from")
  structure(config, class = c("tfdistr_config", "data.frame"), chosen_by = chosen_by(python))
}

# The version and the folder of a Python package.
python_package <- function(name) {
  vapply(core(convert = TRUE)$find_package(name), `%||%`, "", NA_character_)
}

chosen_by <- function(python) {
  if (isTRUE(python$ephemeral)) {
    "py_require()"
  } else if (identical(python$forced, "use_python(, required = FALSE)") &&
               identical(python$python, setup_record("Python"))) {
    "make setup"
  } else {
    python$forced %||% "reticulate"
  }
}

#' @export
print.tfdistr_config <- function(x, ...) {
  shown <- function(column) format(ifelse(is.na(column), "not installed", column))
  lines <- paste0(format(x$component), "  ", shown(x$version), "  ", ifelse(is.na(x$from), "", x$from))
  cli::cat_line(trimws(lines, "right"))
  cli::cat_line("Python was chosen by ", attr(x, "chosen_by"), ".")
  invisible(x)
}
