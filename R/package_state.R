# The state of packages whose functions a job calls: variables, and environments, that differ from those of
# the installed package. Workers load the packages, and get this state.

# Records a variable of a package, and those that it uses if it is a function. `package` is NULL for packages
# without state.
visit_package <- function(name, package, used) {
  known <- is.null(package) || name %in% used$of_packages[[package]] || !isNamespaceLoaded(package)
  if (known || is_of_process(package, used)) {
    return(invisible())
  }
  namespace <- asNamespace(package)
  if (!exists(name, namespace, inherits = FALSE) || bindingIsActive(name, namespace)) {
    return(invisible()) # a data set, what the package exports of another one, or a value that has no state
  }
  used$of_packages[[package]] <- c(used$of_packages[[package]], name)
  value <- namespace[[name]]
  if (typeof(value) == "closure") visit_names(value, used, name)
  invisible()
}

# The package to which a variable of a shared environment belongs; NULL if it is none.
package_of <- function(name, env) {
  if (isNamespace(env)) {
    return(getNamespaceName(env)[[1L]])
  }
  place <- environmentName(env)
  if (startsWith(place, "package:")) {
    return(sub("package:", "", place, fixed = TRUE))
  }
  value <- if (startsWith(place, "imports:")) env[[name]]
  home <- if (typeof(value) == "closure") topenv(environment(value))
  if (!is.null(home) && isNamespace(home)) getNamespaceName(home)[[1L]]
}

# Whether a package's state belongs to its process: of R itself, and of packages that workers use anyway.
is_of_process <- function(package, used) {
  if (is.null(used$of_process)) {
    wanted <- c("tfdistr", "keras3", "tfdatasets")
    while (length(wanted)) {
      used$of_process <- c(used$of_process, wanted)
      wanted <- setdiff(unlist(lapply(wanted, packages_needed)), used$of_process)
    }
  }
  package %in% used$of_process || is_of_r(package)
}

packages_needed <- function(package) {
  if (!isNamespaceLoaded(package)) {
    return(character())
  }
  fields <- unlist(utils::packageDescription(package, fields = c("Depends", "Imports")))
  sub("[[:space:](].*", "", trimws(unlist(strsplit(as.character(fields), ","))))
}

# The state of packages: for each a list of values by their names.
#
# names: The names of the variables that are used, for each package.
package_state <- function(names) {
  changed <- Map(function(package, names) {
    namespace <- asNamespace(package)
    installed <- installed_variables(namespace, package)
    state <- Filter(Negate(is.null), rlang::set_names(lapply(names, state_of, namespace), names))
    differs <- function(name) !identical(state[[name]], state_of(name, installed))
    state[vapply(names(state), differs, NA)]
  }, names(names), names)
  Filter(length, changed)
}

# The variables of a package as it was installed; none if it was loaded from its source.
installed_variables <- function(namespace, package) {
  file <- file.path(getNamespaceInfo(namespace, "path"), "R", package)
  variables <- new.env(parent = namespace)
  if (file.exists(paste0(file, ".rdb"))) lazyLoad(file, envir = variables)
  variables
}

# The state in a variable: a value, or the values in an environment, also in that of a function. NULL if there
# is none that another process can have.
state_of <- function(name, variables) {
  value <- variables[[name]]
  if (typeof(value) == "closure") {
    value <- environment(value)
    if (is_shared(value)) value <- NULL
  }
  if (is.environment(value) && !is_python(value)) {
    value <- mget(sort(variables_of(value)), value)
    value <- structure(value[!vapply(value, is_bound, NA)], class = "tfdistr_state", present = names(value))
  }
  if (!is_bound(value)) value
}

# The names of the variables of an environment; an active binding has no value of its own.
variables_of <- function(env) {
  names(which(!rlang::env_binding_are_active(env)))
}

# Whether a value, or a part of it, is of this process or code of the package.
is_bound <- function(value) {
  parts <- if (isS4(value)) attributes(value) else if (is.list(value)) unclass(value)
  is_python(value) || is_handle(value) || is.function(value) || is.environment(value) ||
    any(vapply(parts, is_bound, NA))
}

restore_package_state <- function(state) {
  for (package in names(state)) {
    namespace <- asNamespace(package)
    for (name in names(state[[package]])) restore_variable(state[[package]][[name]], name, namespace)
  }
}

restore_variable <- function(value, name, namespace) {
  if (!inherits(value, "tfdistr_state")) {
    rlang::env_binding_unlock(namespace, name)
    assign(name, value, namespace)
    return(rlang::env_binding_lock(namespace, name))
  }
  place <- namespace[[name]]
  if (is.function(place)) place <- environment(place)
  rm(list = setdiff(variables_of(place), attr(value, "present")), envir = place)
  list2env(unclass(value), place)
}
