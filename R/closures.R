# R closures that go to other processes, with the variables that they use. Python has cloudpickle for this.
#
# serialize() sends a function with its whole frames, and without the variables of the global environment.
# Here a function takes along the variables of both that it, and the functions that it calls, use by name. The
# rest of a frame may be large, or an object that no other process can have.

# Everything that the functions need, for restore_functions().
#
# functions: A named list of functions; some may be NULL.
# Returns: a list with `functions`, `globals` (variables for the global environment) and `packages` (packages
#   to attach, in this order).
capture_functions <- function(functions) {
  used <- new_used()
  visit(functions, used)
  attached <- sub("^package:", "", grep("^package:", search(), value = TRUE))
  parts <- copy_value(list(functions = functions, globals = used$globals), used)
  c(parts, list(packages = rev(attached)))
}

# Puts the result of capture_functions() into this process. Returns the functions.
restore_functions <- function(captured) {
  for (package in setdiff(captured$packages, .packages())) {
    suppressPackageStartupMessages(library(package, character.only = TRUE))
  }
  list2env(captured$globals, globalenv())
  captured$functions
}

# The bytes of each variable that captured functions take along, by its name.
sizes_of_variables <- function(captured) {
  variables <- captured$globals
  for (env in lapply(Filter(is.function, captured$functions), environment)) {
    while (!is_shared(env) && !identical(env, globalenv())) {
      variables <- c(variables, mget(ls(env), env))
      env <- parent.env(env)
    }
  }
  vapply(variables, function(value) as.numeric(utils::object.size(value)), 0)
}

# The variables that are used: `names` has their names for each of `frames`; `globals` has the names and
# values of variables in the global environment, or in a database that attach() put behind it.
new_used <- function() {
  rlang::env(frames = list(), names = list(), globals = list())
}

# Records a variable of a frame. Returns whether it is new.
add_variable <- function(used, frame, name) {
  place <- which_env(frame, used$frames)
  if (is.na(place)) {
    place <- length(used$frames) + 1L
    used$frames[[place]] <- frame
    used$names[[place]] <- character()
  }
  new <- !name %in% used$names[[place]]
  if (new) used$names[[place]] <- c(used$names[[place]], name)
  new
}

add_global <- function(used, name, value) {
  new <- !name %in% names(used$globals)
  if (new) used$globals[name] <- list(value)
  new
}

which_env <- function(env, envs) {
  Position(function(known) identical(known, env), envs)
}

# Records in `used` the variables that a value needs: a function, a formula, or a list or an environment (an
# R6 object) with functions or formulas in it.
visit <- function(value, used) {
  if (is_python(value)) {
    return(invisible())
  }
  if (typeof(value) == "closure") {
    # findGlobals() warns where `...` belongs to an enclosing function.
    names <- suppressWarnings(codetools::findGlobals(value, merge = FALSE))
    for (name in names$functions) visit_variable(name, environment(value), "function", used)
    if ("..." %in% all.names(body(value))) names$variables <- c(names$variables, "...")
    for (name in names$variables) visit_variable(name, environment(value), "any", used)
  } else if (inherits(value, "formula")) {
    for (name in all.vars(value)) visit_variable(name, environment(value), "any", used)
  } else if (is.list(value) && !is.data.frame(value)) {
    for (part in unclass(value)) visit(part, used)
  } else if (is.environment(value) && !is_shared(value)) {
    for (name in ls(value, all.names = TRUE)) {
      if (!bindingIsActive(name, value) && add_variable(used, value, name)) visit(value_of(name, value), used)
    }
  }
  invisible()
}

visit_variable <- function(name, env, mode, used) {
  while (!identical(env, emptyenv()) && !exists(name, env, mode = mode, inherits = FALSE)) {
    env <- parent.env(env)
  }
  if (is_shared(env)) {
    return(invisible())
  }
  if (is_keras3_class(name, env)) {
    return(visit_keras3_class(name, env, used))
  }
  on_search_path <- !is.na(which_env(env, lapply(search(), as.environment)))
  value <- value_of(name, env)
  new <- if (on_search_path) add_global(used, name, value) else add_variable(used, env, name)
  if (new) visit(value, used)
}

# Classes of keras3 (`Layer()`, `Model()`, `Callback()`) are promises in the frame of a function. The promise
# makes a Python class, which only its own process can have, from the other variables of the frame. So the
# promise goes along, and each worker makes the class.
keras3_class_parts <- c("classname", "members", "inherit", "private", "parent_env")

is_keras3_class <- function(name, frame) {
  all(c("__class__", keras3_class_parts) %in% ls(frame, all.names = TRUE)) &&
    name %in% c("__class__", frame$classname)
}

visit_keras3_class <- function(name, frame, used) {
  if (add_variable(used, frame, name)) {
    for (part in keras3_class_parts) add_variable(used, frame, part)
    visit(frame$members, used)
    visit(frame$private, used)
    for (name in all.vars(frame$inherit)) visit_variable(name, frame$parent_env, "any", used)
    if (name != frame$classname) visit_keras3_class(frame$classname, frame, used)
  }
  invisible()
}

# Makes the same promise in another frame.
copy_promise <- function(name, frame, copy) {
  expression <- do.call(substitute, list(as.name(name), frame))
  eval(call("delayedAssign", name, expression, copy, copy))
}

# Whether every process has this environment, because it belongs to R or to a package.
is_shared <- function(env) {
  isNamespace(env) || grepl("^(base|R_EmptyEnv|Autoloads|(package|imports):.*)$", environmentName(env))
}

# The value of a variable; NULL for a missing argument, a list for `...`.
value_of <- function(name, env) {
  if (name == "...") {
    return(eval(quote(list(...)), env))
  }
  value <- env[[name]]
  if (missing(value)) NULL else value
}

# A frame that has only `...`.
frame_with <- function(dots) {
  do.call(function(...) {
    list(...) # arguments that are evaluated do not keep this frame
    environment()
  }, as.list(dots), quote = TRUE)
}

# A copy of a value. Functions in it get copies of their frames, with the used variables only. `done` has the
# frames that were copied already, and their copies.
copy_value <- function(value, used, done = rlang::env(frames = list(), copies = list())) {
  if (is_python(value)) {
    return(value)
  }
  if (typeof(value) == "closure") {
    # A new closure: serialize() writes the marks by which R compiles a function that is called again.
    copy <- rlang::new_function(formals(value), body(value), copy_frame(environment(value), used, done))
    attributes(copy) <- attributes(value)
    value <- copy
  } else if (inherits(value, "formula")) {
    environment(value) <- copy_frame(environment(value), used, done)
  } else if (is.list(value) && !is.data.frame(value)) {
    copy <- lapply(unclass(value), copy_value, used, done)
    attributes(copy) <- attributes(value)
    value <- copy
  }
  value
}

copy_frame <- function(frame, used, done) {
  if (is_shared(frame) || identical(frame, globalenv())) {
    return(frame)
  }
  place <- which_env(frame, done$frames)
  if (!is.na(place)) {
    return(done$copies[[place]])
  }
  place <- which_env(frame, used$frames)
  names <- if (is.na(place)) character() else used$names[[place]]
  copy <- frame_with(if ("..." %in% names) value_of("...", frame))
  parent.env(copy) <- copy_frame(parent.env(frame), used, done)
  # Recorded before it is filled: a function in the frame may have this same frame.
  done$frames <- c(done$frames, frame)
  done$copies <- c(done$copies, copy)
  for (name in setdiff(names, "...")) {
    if (is_keras3_class(name, frame)) {
      copy_promise(name, frame, copy)
    } else if (name == "parent_env" && is_keras3_class(frame$classname, frame)) {
      assign(name, copy_frame(frame$parent_env, used, done), copy)
    } else {
      assign(name, copy_value(value_of(name, frame), used, done), copy)
    }
  }
  copy
}
