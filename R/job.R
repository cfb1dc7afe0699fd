# What the core needs of this R session for a job: its functions, and what to call before workers start.

# functions: All arguments of the job that may be R functions, by the name that the core has for them.
# cluster: The cluster that starts the workers; NULL if this process does the work.
# display: Shows the events of the job; see make_display().
# frame: The frame at whose end this job ends.
new_job <- function(functions, cluster, display, frame = rlang::caller_env(), call = frame) {
  functions <- Filter(is_r_function, functions)
  errors <- errors_in_session(frame)
  if (is.null(cluster)) {
    core()$hold_import_hooks() # see before_import_hooks()
    withr::defer(core()$run_import_hooks(), envir = frame)
    say_if_session()
    keep_random_numbers()
  }
  before_start <- function(seed, run_dir) with_call(save_functions(functions, seed, run_dir), call)
  on_seed <- function(seed) {
    if (is.null(cluster)) core()$run_import_hooks() # the strategy is made; the functions of the job come next
    set.seed(seed)
  }
  # A part of the job for the core. With `cluster`, the core gets the name of a function, not the function.
  part <- function(value, name, convert = function(value, call) value) {
    if (!is_r_function(value)) {
      convert(value, call)
    } else if (is.null(cluster)) {
      if (name %in% c("data", "validation")) value <- data_function(value)
      reticulate::r_to_py(recorded(value, errors))
    } else {
      core()$FunctionByName(name, name %in% c("data", "validation") && is_generator(value))
    }
  }
  data <- function(x, y, sample_weight, validation_data) {
    list(
      x = part(x, "data", function(value, call) python_inputs(value, "x", call)),
      y = python_targets(y, "y", call), sample_weight = python_weights(sample_weight, "sample_weight", call),
      validation_data = part(validation_data, "validation", function(value, call) {
        python_validation(value, names(x), call)
      })
    )
  }
  callbacks <- function(value) {
    if (inherits(value, "tfdistr_callback_code")) value$listed else part(value, "callbacks")
  }
  build <- if (is.function(functions$model)) recorded(functions$model, errors)
  # The model, or an earlier fit whose model the job continues with.
  model <- function(earlier = NULL, given = NULL) {
    if (is.null(build)) {
      if (is.null(earlier)) given else python_fit(earlier)
    } else {
      made <- part(functions$model, "model")
      if (is.null(earlier)) made else core()$with_recipe(python_fit(earlier), made, build)
    }
  }
  list(
    errors = errors, part = part, data = data, model = model, callbacks = callbacks,
    caller = function(seed = NULL) {
      core(convert = TRUE)$Caller(
        display$event, TRUE,
        before_start = recorded(before_start, errors), on_seed = on_seed, build = build, seed = seed
      )
    }
  )
}

# A function by which the core trains a model of R. It gets the errors of the core as they are in Python.
trainer <- function(train, record) {
  keeps_errors <- recorded(train, record)
  function(...) {
    tryCatch(python_fit(keeps_errors(...)), tfdistr_error = function(error) {
      record$condition <- error
      record$error <- if (is.null(error$exception)) error
      rlang::cnd_signal(error$exception %||% error)
    })
  }
}

is_r_function <- function(object) {
  is.function(object) && !is_python(object)
}
