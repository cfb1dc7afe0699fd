# The R process of a worker: its input, and its work. In Python, this is jobs/worker.py.

# Writes functions, and the state of R in which they run, into the run directory, for load_functions().
save_functions <- function(functions, seed, run_dir, root = globalenv()) {
  objects <- reticulate::import_builtins(convert = FALSE)$list()
  bundle <- list(captured = capture_functions(functions, root), seed = seed, kind = RNGkind())
  # Python pickles the Python objects. saveRDS() calls the hook for each environment.
  hook <- function(object) {
    if (is_python(object)) {
      objects$append(object)
      convert <- isTRUE(get0("convert", object, inherits = FALSE))
      c(as.character(reticulate::py_len(objects) - 1L), as.character(convert))
    }
  }
  mask <- Sys.umask("077") # the worker runs what is in the file
  on.exit(Sys.umask(mask))
  save_rds(bundle, file.path(run_dir, "job.rds"), hook)
  core()$save_value(objects, run_dir, "objects")
}

# saveRDS(), which only warns when a full disk refuses the end of a file.
save_rds <- function(object, path, hook) {
  connection <- file(path, "wb")
  closed <- FALSE
  on.exit(if (!closed) suppressWarnings(close(connection)))
  refuse <- function(condition) core()$refuse_file(path, conditionMessage(condition))
  withCallingHandlers(
    saveRDS(object, connection, refhook = hook),
    error = function(error) if (core(convert = TRUE)$is_full(path)) refuse(error)
  )
  closed <- TRUE
  tryCatch(close(connection), warning = refuse)
}

# Functions, and all that they use, as raw vectors, for another session of the user.
pack_functions <- function(functions) {
  folder <- tempfile("tfdistr-functions-")
  dir.create(folder, mode = "0700")
  on.exit(unlink(folder, recursive = TRUE))
  save_functions(functions, 0L, folder, root = new.env(parent = globalenv()))
  files <- list.files(folder)
  content <- function(file) readBin(file, "raw", file.size(file))
  rlang::set_names(lapply(file.path(folder, files), content), files)
}

unpack_functions <- function(packed) {
  folder <- tempfile("tfdistr-functions-")
  dir.create(folder, mode = "0700")
  on.exit(unlink(folder, recursive = TRUE))
  mask <- Sys.umask("077")
  Map(writeBin, packed, file.path(folder, names(packed)))
  Sys.umask(mask)
  withr::with_preserve_seed(load_functions(folder))
}

load_functions <- function(run_dir) {
  objects <- core()$load_value(run_dir, "objects")
  hook <- function(place) {
    object <- objects[[as.integer(place[[1L]])]]
    object <- attr(object, "py_object", exact = TRUE) %||% object # R functions wrap callables
    assign("convert", as.logical(place[[2L]]), envir = object)
    object
  }
  file <- file.path(run_dir, "job.rds")
  core()$check_own(file) # this process runs what is in the file
  bundle <- readRDS(file, refhook = hook)
  functions <- restore_functions(bundle$captured)
  # The same seed in every worker, so that the functions draw the same random numbers.
  set.seed(bundle$seed, bundle$kind[[1L]], bundle$kind[[2L]], bundle$kind[[3L]])
  functions
}

# The functions of the job, by name. They are loaded when the first one is called: their packages may use a
# device, which is not allowed before the strategy is made.
worker_functions <- function(run_dir) {
  delayedAssign("functions", load_functions(run_dir))
  called <- function(name) function(...) traced_interrupt(call_with(functions[[name]], ..., .name = name))
  calls <- rlang::set_names(lapply(job_functions, called), job_functions)
  calls$placement <- of_layer(calls$placement)
  for (name in c("data", "validation")) calls[[name]] <- data_function(calls[[name]])
  calls
}

# A function of a layer, which gets the attributes of the layer, such as its name, as R values.
of_layer <- function(fun) {
  force(fun)
  function(layer) fun(reticulate::py_to_r(layer))
}

# Evaluates code of the user. The watchdog sends an interrupt to learn where the code is. The interrupt
# becomes an error, because only an error carries R's calls.
traced_interrupt <- function(code) {
  withCallingHandlers(code, interrupt = function(condition) stop("interrupted in R", call. = FALSE))
}

# The parts of a job that may be R functions, as the core names them.
job_functions <- c("model", "data", "validation", "callbacks", "placement")

# Trains as the worker that the command line names, and ends the process.
worker_main <- function(args = commandArgs(TRUE)) {
  run_dir <- args[[1L]]
  keep_random_numbers()
  status <- withCallingHandlers(
    core()$run_worker(
      run_dir, as.integer(args[[2L]]),
      functions = worker_functions(run_dir), foreign = r_error
    ),
    warning = send_warning
  )
  end_process(status)
}

# A warning of the user's code, in the process of a worker: it goes into the log, and to the session.
send_warning <- function(condition) {
  cat("Warning: ", conditionMessage(condition), "\n", file = stderr(), sep = "")
  core()$user_warned(conditionMessage(condition))
  invokeRestart("muffleWarning")
}

# Adds the state of R's random numbers to checkpoints, as text, which keeps NA.
keep_random_numbers <- function() {
  core()$keep_random_numbers(
    "R",
    function() paste(get0(".Random.seed", globalenv(), inherits = FALSE), collapse = " "),
    function(state) {
      state <- reticulate::py_to_r(state)
      if (nzchar(state)) {
        assign(".Random.seed", as.integer(strsplit(state, " ", fixed = TRUE)[[1L]]), globalenv())
      }
    }
  )
}

# Skips the normal end of R and Python, in which TensorFlow's threads may abort when a peer has ended already.
end_process <- function(status) {
  sys <- reticulate::import("sys")
  sys$stdout$flush()
  sys$stderr$flush()
  flush(stdout())
  flush(stderr())
  reticulate::import("os")$`_exit`(status)
}
