# Callbacks with R code, such as those of callback_lambda(): Python cannot serialize them. Each worker
# evaluates the code that makes them, in a copy of the frame in which the caller has written it.

# The argument `callbacks` with its code and the frame of the caller. A function that passes the argument on
# to distributed_fit() passes this on.
written_callbacks <- function(value, code, frame) {
  if (inherits(value, "tfdistr_written")) {
    return(value)
  }
  structure(list(value = value, code = code, frame = frame), class = "tfdistr_written")
}

# The argument `callbacks` for workers.
#
# written: What written_callbacks() returns.
# Returns: the value. If it has callbacks with R code, a list of class "tfdistr_callback_code" with `fun`, the
#   function that makes these, and `listed`, all callbacks, with the name of this function in their place.
callbacks_for_workers <- function(written, call = rlang::caller_env()) {
  callbacks <- written$value
  listed <- if (is_python(callbacks)) list(callbacks) else callbacks
  if (!is.list(listed)) {
    return(callbacks)
  }
  of_r <- !vapply(listed, can_be_sent, NA)
  if (!any(of_r)) {
    return(callbacks)
  }
  code <- written$code
  written <- written_code(code, written$frame)
  made <- making(written$code, listed, which(of_r), callbacks)
  known <- if (is.call(written$code)) made_before(made, written$frame) else code
  if (!is.null(known)) {
    abort(
      "argument", "Cannot send a callback with R code to the workers if only its object is known.",
      received = paste0(rlang::as_label(known), ", an object of class ", class(listed[of_r][[1L]])[[1L]]),
      fix = paste(
        "Pass a function that makes it, or write it in the call of distributed_fit():",
        "callbacks = list(callback_lambda(...))."
      ),
      call = call
    )
  }
  listed[of_r] <- list(core()$FunctionByName("callbacks"))
  structure(
    list(fun = rlang::new_function(NULL, made, written$frame), listed = listed),
    class = "tfdistr_callback_code"
  )
}

# The name of a callback with R code that `made` only names, as list(stopping) does. NULL if there is none.
made_before <- function(made, frame) {
  names <- suppressWarnings(codetools::findGlobals(rlang::new_function(NULL, made), merge = FALSE))
  for (name in names$variables) {
    value <- get0(name, frame)
    for (one in if (is.list(value)) value else list(value)) {
      if (inherits(one, "keras.src.callbacks.callback.Callback") && !can_be_sent(one)) {
        return(as.symbol(name))
      }
    }
  }
}

can_be_sent <- function(callback) {
  !is_python(callback) || reticulate::py_to_r(core()$can_be_pickled(callback))
}

# The code that makes some of the callbacks: of list(a, b) only these, as each may do more.
making <- function(code, listed, places, callbacks) {
  if (is_python(callbacks)) {
    rlang::call2("list", code)
  } else if (rlang::is_call(code, "list") && length(code) == length(listed) + 1L) {
    code[c(1L, places + 1L)]
  } else {
    rlang::call2("[", code, places)
  }
}

# The code of an argument, and its frame: of a function that passes on its own argument, the code of this one.
written_code <- function(code, frame) {
  place <- Position(function(known) identical(known, frame), sys.frames())
  passed <- if (is.symbol(code) && !is.na(place)) do.call(substitute, list(code, frame))
  if (!is.language(passed) || identical(passed, code)) {
    return(list(code = code, frame = frame))
  }
  above <- sys.parents()[[place]]
  written_code(passed, if (above) sys.frame(above) else globalenv())
}
