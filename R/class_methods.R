# Methods and classes that a session has defined, outside of packages: code does not name them where R finds
# them by the class of a value.

# The classes that values have without an attribute, or from R's own functions.
implicit_classes <- c(
  "default", "NULL", "logical", "integer", "double", "numeric", "complex", "character", "raw", "list",
  "matrix", "array", "function", "name", "call", "factor", "data.frame"
)

# Records the S3 methods of the global environment, of the frames that are used, and those that the session
# has registered, for the functions and the classes that are used. Methods use others. Returns the registered
# ones.
visit_methods <- function(used) {
  found <- function() c(names(used$globals), unlist(used$names), used$classes, used$texts, used$called)
  repeat {
    before <- found()
    for (frame in c(globalenv(), used$frames)) {
      generics <- c(names(used$globals), unlist(used$names))
      for (name in methods_among(ls(frame, all.names = TRUE), generics, used)) {
        if (exists(name, frame, mode = "function", inherits = FALSE)) {
          visit_variable(name, frame, "function", used)
        }
      }
    }
    registered <- visit_registered(used)
    if (identical(found(), before)) {
      return(registered)
    }
  }
}

# The names that may be those of S3 methods: "print.money" of the function "print" and the class "money". For
# a class that any value may have, code must name the function.
methods_among <- function(names, generics, used) {
  classes <- c(used$classes, used$texts)
  is_method <- function(name) {
    dots <- gregexpr(".", name, fixed = TRUE)[[1L]]
    generic <- substring(name, 1L, dots - 1L)
    class <- substring(name, dots + 1L)
    any(generic %in% generics | class %in% classes | generic %in% used$called & class %in% implicit_classes)
  }
  Filter(is_method, grep("[^.][.].", names, value = TRUE))
}

# S3 methods that the session has registered, by .S3method() or by `method<-` of S7.
visit_registered <- function(used) {
  registered <- list()
  for (package in sort(loadedNamespaces())) {
    table <- asNamespace(package)[[".__S3MethodsTable__."]]
    for (name in methods_among(ls(table), character(), used)) {
      fun <- table[[name]]
      if (typeof(fun) == "closure" && identical(topenv(environment(fun)), globalenv())) {
        visit(fun, used, name)
        registered <- c(registered, list(list(package = package, name = name, fun = fun)))
      }
    }
  }
  registered
}

# Records all S4 classes and methods of the session. They are variables of the global environment.
visit_s4 <- function(used) {
  for (name in grep("^[.]__[CT]__", ls(globalenv(), all.names = TRUE), value = TRUE)) {
    value <- globalenv()[[name]]
    if (!add_global(used, name, value)) next
    if (is.environment(value)) {
      visit(value, used, name)
      visit_own(sub("^[.]__T__(.*):.*", "\\1", name), globalenv(), "function", used) # the generic
    } else {
      visit(value@validity, used, name)
      if (methods::is(value, "refClassRepresentation")) visit(value@refMethods, used, name)
    }
  }
}

restore_methods <- function(captured) {
  for (method in captured$registered) {
    assign(method$name, method$fun, envir = asNamespace(method$package)[[".__S3MethodsTable__."]])
  }
  if (any(grepl("^[.]__[CT]__", names(captured$globals)))) methods::cacheMetaData(captured$root, TRUE)
}

# The packages, of those that are loaded, that have methods for classes that R does not know.
packages_with_methods <- function(classes) {
  of_r <- vapply(setdiff(loadedNamespaces(), "base"), is_of_r, NA)
  have <- function(package) intersect(classes, getNamespaceInfo(package, "S3methods")[, 2L])
  known <- c(unlist(lapply(names(of_r)[of_r], have)), baseenv()[[".S3_methods_table"]][, 2L])
  classes <- setdiff(classes, known)
  Filter(function(package) length(have(package)) > 0L, sort(names(of_r)[!of_r]))
}

is_of_r <- function(package) !is.na(utils::packageDescription(package, fields = "Priority"))
