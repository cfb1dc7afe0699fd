# R closures that go to other processes, with the variables that they use. Python has cloudpickle for this.
#
# serialize() sends a function with its whole frames, and without the variables of the global environment.
# Here a function takes along the variables of both that it, and the functions that it calls, use by name. The
# rest of a frame may be large, or an object that no other process can have.

# Everything that the functions need, for restore_functions().
#
# functions: A named list of functions; some may be NULL.
# root: What gets the variables of the global environment where the functions are restored: that of the
#   worker, or an environment of their own in a session, whose global environment belongs to the user.
# Returns: a list with `functions`, `globals` (variables for `root`), `registered` (S3 methods, see
#   R/class_methods.R), `root`, `packages` (packages to attach, in this order), `loaded` (packages to load)
#   and `state` (changed variables of packages, see R/package_state.R).
capture_functions <- function(functions, root = globalenv()) {
  used <- new_used(root)
  for (name in names(functions)) visit(functions[[name]], used, name)
  registered <- visit_methods(used)
  attached <- sub("^package:", "", grep("^package:", search(), value = TRUE))
  captured <- list(functions = functions, globals = used$globals, registered = registered)
  c(copy_value(captured, used), list(
    root = root, packages = rev(attached), loaded = packages_with_methods(used$classes),
    state = package_state(used$of_packages)
  ))
}

# Puts the result of capture_functions() into this process. Returns the functions.
restore_functions <- function(captured) {
  for (package in setdiff(captured$packages, .packages())) {
    suppressPackageStartupMessages(library(package, character.only = TRUE))
  }
  for (package in captured$loaded) requireNamespace(package, quietly = TRUE)
  restore_package_state(captured$state)
  list2env(captured$globals, captured$root)
  restore_methods(captured)
  captured$functions
}

# The bytes of each variable that captured functions take along, by its name.
sizes_of_variables <- function(captured) {
  variables <- captured$globals
  for (env in lapply(Filter(is.function, captured$functions), environment)) {
    while (is_frame(env)) {
      variables <- c(variables, mget(ls(env), env))
      env <- parent.env(env)
    }
  }
  vapply(variables, function(value) as.numeric(utils::object.size(value)), 0)
}

# The variables that are used: `names` has their names for each of `frames`; `globals` has the names and
# values of variables in the global environment, or in a database that attach() put behind it; `of_packages`
# has the names of variables for each package; `classes` has the classes of the values, `texts` the texts in
# code, which may name others, `called` the names in code, which may be generics of packages; `variable` is
# the user's variable that is visited.
new_used <- function(root) {
  rlang::env(
    root = root, frames = list(), names = list(), globals = list(), of_packages = list(),
    classes = character(), texts = character(), called = character()
  )
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

# Records in `used` the variables that a value needs: a function, a formula, or a list, an environment (an R6
# object) or an S4 object with functions or formulas in it. `path` is the user's name of the value.
visit <- function(value, used, path) {
  if (is_python(value)) {
    return(invisible())
  }
  if (is_handle(value)) refuse_handle(value, path, used$variable)
  used$classes <- union(used$classes, oldClass(value))
  if (isS4(value)) visit_s4(used)
  if (typeof(value) == "closure") {
    visit_names(value, used, path)
    if (methods::is(value, "genericFunction")) visit(environment(value), used, path)
  } else if (inherits(value, "formula")) {
    for (name in all.names(value)) visit_variable(name, environment(value), "any", used)
  } else if (is.symbol(value) && !rlang::is_missing(value)) { # what an R6 class inherits
    visit_variable(as.character(value), globalenv(), "any", used)
  } else if (is.list(value)) {
    value <- unclass(value)
    Map(visit, value, list(used), part_names(path, value))
  } else if (is_frame(value)) {
    for (name in ls(value, all.names = TRUE)) {
      if (!bindingIsActive(name, value) && add_variable(used, value, name)) {
        visit(value_of(name, value), used, paste0(path, "$", name))
      }
    }
  }
  held <- inner_attributes(value)
  Map(visit, held, list(used), paste0(path, if (isS4(value)) "@" else " ", names(held)))
  invisible()
}

# The attributes of a value that may hold functions: the slots of an S4 object, what an S7 class has.
inner_attributes <- function(value) {
  held <- attributes(value)
  plain <- c("names", "class", "dim", "dimnames", "row.names", "levels", "srcref", ".Environment", "package")
  # A class of S4, and a data.table, has an external pointer, which R and data.table make anew.
  if (methods::is(value, "classRepresentation")) held <- NULL
  Filter(function(part) isS4(value) || typeof(part) != "externalptr", held[setdiff(names(held), plain)])
}

refuse_handle <- function(value, path, variable) {
  by <- if (!is.null(variable) && !startsWith(path, variable)) sprintf(", which `%s` uses", variable)
  with_conditions(core()$refuse_handle(path, paste0(class(value)[[1L]], by)), call = NULL)
}

# Whether a value belongs to this process: an external pointer, or a connection other than the standard ones.
is_handle <- function(value) {
  typeof(value) == "externalptr" || inherits(value, "connection") && as.integer(value) > 2L
}

visit_names <- function(fun, used, path) {
  # findGlobals() warns where `...` belongs to an enclosing function.
  names <- suppressWarnings(codetools::findGlobals(fun, merge = FALSE))
  used$called <- union(used$called, unlist(names))
  for (name in names$functions) visit_variable(name, environment(fun), "function", used)
  if ("..." %in% all.names(body(fun))) names$variables <- c(names$variables, "...")
  changed <- names_of_changed(body(fun), names(formals(fun)))
  # findGlobals() does not look into formulas, such as `~ .x + offset`, and quoted code.
  quoted <- unlist(lapply(calls_to(c("~", "quote", "bquote", "expression"), body(fun)), all.names))
  for (name in c(names$variables, changed, quoted)) visit_variable(name, environment(fun), "any", used)
  for (call in calls_to(c("::", ":::"), body(fun))) {
    visit_package(as.character(call[[3L]]), as.character(call[[2L]]), used)
  }
  visit_texts(fun, used)
  if ("parent.env" %in% names$functions) visit_frames(environment(fun), used, path)
}

# What texts in code name: functions, as in do.call("f"), variables of get(), and classes.
visit_texts <- function(fun, used) {
  texts <- texts_in(c(body(fun), formals(fun)))
  used$texts <- union(used$texts, texts)
  if (any(paste0(".__C__", texts) %in% ls(globalenv(), all.names = TRUE))) visit_s4(used)
  for (name in texts) visit_own(name, environment(fun), "function", used)
  of_get <- calls_to(c("get", "get0", "mget"), body(fun))
  for (name in texts_in(of_get)) visit_own(name, environment(fun), "any", used)
}

# The texts in code.
texts_in <- function(code) {
  if (is.character(code)) {
    unique(code[nzchar(code) & !is.na(code)])
  } else if (is.call(code) || is.list(code) || is.expression(code)) {
    unique(unlist(lapply(Filter(Negate(rlang::is_missing), as.list(code)), texts_in)))
  }
}

# Records a variable that no package has.
visit_own <- function(name, env, mode, used) {
  while (!is_shared(env) && !exists(name, env, mode = mode, inherits = FALSE)) env <- parent.env(env)
  if (!is_shared(env)) visit_variable(name, env, mode, used)
}

# Records all variables of frames that code reads by parent.env(), as memoise does.
visit_frames <- function(frame, used, path) {
  while (is_frame(frame)) {
    visit(frame, used, path)
    frame <- parent.env(frame)
  }
}

# The calls of functions of these names in code.
calls_to <- function(names, code) {
  inner <- if (is.call(code)) lapply(Filter(is.call, as.list(code)), function(part) calls_to(names, part))
  c(if (rlang::is_call(code, names) && length(code) > 1L) list(code), unlist(inner, recursive = FALSE))
}

# The variables of which code changes a part, as in `state$count <- 1`, and that it does not make itself. For
# findGlobals() they are local.
names_of_changed <- function(code, own) {
  targets <- lapply(calls_to(c("<-", "=", "for"), code), `[[`, 2L)
  whole <- vapply(targets, is.symbol, NA)
  parts <- lapply(targets[!whole], function(target) {
    while (is.call(target) && length(target) > 1L) target <- target[[2L]]
    target
  })
  changed <- vapply(Filter(is.symbol, parts), as.character, "")
  setdiff(changed, c(own, vapply(targets[whole], as.character, "")))
}

visit_variable <- function(name, env, mode, used) {
  while (!identical(env, emptyenv()) && !exists(name, env, mode = mode, inherits = FALSE)) {
    env <- parent.env(env)
  }
  if (is_shared(env)) {
    return(visit_package(name, package_of(name, env), used))
  }
  if (is_keras3_class(name, env)) {
    return(visit_keras3_class(name, env, used))
  }
  on_search_path <- !is.na(which_env(env, lapply(search(), as.environment)))
  value <- value_of(name, env)
  new <- if (on_search_path) add_global(used, name, value) else add_variable(used, env, name)
  if (new) {
    outermost <- is.null(used$variable)
    if (outermost) used$variable <- name
    visit(value, used, name)
    if (outermost) used$variable <- NULL
    # Code in a variable is for eval(). Code in a list may only say how it was made, as that of lm() does.
    if (is.call(value) || is.expression(value)) {
      for (inner in all.names(value)) visit_variable(inner, env, "any", used)
    }
  }
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
    visit(frame$members, used, name)
    visit(frame$private, used, name)
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

# Whether a value is an environment other than these and the global one.
is_frame <- function(value) is.environment(value) && !is_shared(value) && !identical(value, globalenv())

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
    value <- with_attributes_of(value, copy, used, done)
  } else if (inherits(value, "formula")) {
    environment(value) <- copy_frame(environment(value), used, done)
  } else if (is.list(value) && !is.data.frame(value)) {
    copy <- lapply(unclass(value), copy_value, used, done)
    value <- with_attributes_of(value, copy, used, done)
  } else if (is_plain_environment(value) && !is.na(which_env(value, used$frames))) {
    value <- copy_frame(value, used, done)
  }
  value
}

with_attributes_of <- function(value, copy, used, done) {
  held <- inner_attributes(value)
  attributes(copy) <- replace(attributes(value), names(held), lapply(held, copy_value, used, done))
  if (isS4(value)) asS4(copy) else copy
}

# Whether a value is an environment without a class: serialize() would take its parents along.
is_plain_environment <- function(value) {
  is_frame(value) && is.null(attributes(value)) && !any(rlang::env_binding_are_active(value))
}

copy_frame <- function(frame, used, done) {
  if (identical(frame, globalenv())) {
    return(used$root)
  }
  if (is_shared(frame)) {
    return(frame)
  }
  place <- which_env(frame, done$frames)
  if (!is.na(place)) {
    return(done$copies[[place]])
  }
  place <- which_env(frame, used$frames)
  names <- if (is.na(place)) character() else used$names[[place]]
  copy <- if ("..." %in% names) frame_with(value_of("...", frame)) else new.env()
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
