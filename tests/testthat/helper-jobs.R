# What several test files need: a small model, small data, and processes that are looked after.

# 128 of the digits, as R arrays: whole batches of 32 and of 64, which take one trace of the step.
some_digits <- function() {
  arrays <- load_dataset("digits", "test")$arrays()
  list(x = arrays[[1L]][1:128, , , , drop = FALSE] / 16, y = as.integer(arrays[[2L]][1:128]))
}

small_model <- function() {
  keras <- reticulate::import("keras")
  model <- keras$Sequential(list(keras$layers$Flatten(), keras$layers$Dense(10L, "softmax")))
  model$compile("sgd", "sparse_categorical_crossentropy")
  model
}

# A model whose layer warns on workers.
normalizing_model <- function() {
  keras <- reticulate::import("keras")
  layers <- keras$layers
  norm <- layers$BatchNormalization(name = "norm")
  model <- keras$Sequential(list(layers$Flatten(), norm, layers$Dense(10L)))
  model$compile("sgd", keras$losses$SparseCategoricalCrossentropy(from_logits = TRUE))
  model
}

# The largest difference between the weights of two models.
difference <- function(one, other) {
  max(mapply(function(a, b) max(abs(a - b)), one$get_weights(), other$get_weights()))
}

expect_identical_fits <- function(one, other) {
  testthat::expect_identical(difference(one$model, other$model), 0)
  testthat::expect_identical(one$history, other$history)
}

# The warnings of code, which continues after them.
warnings_of <- function(code) {
  given <- new.env()
  withCallingHandlers(code, warning = function(condition) {
    given$all <- c(given$all, list(condition))
    invokeRestart("muffleWarning")
  })
  given$all
}

# Starts one of scripts/, or another file by its path, in an R session of its own, which ends with the test at
# the latest. `$output()` is what it has printed, `$temporary` its folder for temporary files.
start_script <- function(name, args = character(), env = character(), frame = parent.frame(), folder = NULL) {
  output <- withr::local_tempfile(.local_envir = frame)
  temporary <- withr::local_tempdir(.local_envir = frame) # what is killed leaves files behind
  file <- if (basename(name) == name) testthat::test_path("scripts", name) else name
  process <- processx::process$new(
    file.path(R.home("bin"), "Rscript"),
    c("--no-init-file", file, args),
    wd = folder,
    env = c(
      "current", env,
      RETICULATE_PYTHON = reticulate::py_config()$python, TF_CPP_MIN_LOG_LEVEL = "2",
      TMPDIR = temporary
    ),
    stdout = output, stderr = "2>&1"
  )
  # A process may end while the tree is searched.
  withr::defer(tryCatch(process$kill_tree(), no_such_process = function(error) NULL), envir = frame)
  list(
    process = process, output = function() paste(readLines(output), collapse = "\n"), temporary = temporary
  )
}

runs <- function(pid) tools::pskill(pid, 0L)

# The events that the workers of a run have reported, as text.
events <- function(run_dir) {
  files <- Sys.glob(file.path(run_dir, "workers", "*", "events.jsonl"))
  unlist(lapply(files, readLines))
}

# The process ids of those that have started.
pids <- function(run_dir) {
  started <- grep('"started"', events(run_dir), value = TRUE)
  vapply(started, function(line) jsonlite::fromJSON(line)$pid, 1L, USE.NAMES = FALSE)
}

# Starts a script once for each of two tasks, and reads what each has written.
two_tasks <- function(script, configs) {
  outputs <- withr::local_tempfile(pattern = c("task-0", "task-1"))
  frame <- environment()
  tasks <- Map(function(output, config) start_script(script, output, config, frame), outputs, configs)
  for (task in tasks) {
    task$process$wait(120000)
    testthat::expect_identical(task$process$get_exit_status(), 0L, info = task$output())
  }
  lapply(unname(outputs), readRDS)
}

# Makes a tensor as soon as Keras is imported, as keras3 does. TensorFlow joins no cluster after that.
make_tensor_with_keras <- function() {
  made <- new.env()
  setHook("reticulate::keras::load", function(...) {
    made$tensor <- as.numeric(reticulate::import("tensorflow")$constant(1)$numpy())
  })
  made
}

# A module of the Python that this package carries, beyond what the package itself calls.
module_of_core <- function(name) {
  core()
  reticulate::import(paste0("tfdistr.", name))
}

free_addresses <- function() {
  paste0("127.0.0.1:", module_of_core("network.ports")$free_ports(2L))
}

# What hides the GPUs of this machine, if it has some: a fork server serves those with the same variables.
no_gpus <- function() {
  gpus <- module_of_core("utils.gpus")$visible_gpus(reticulate::dict())
  if (length(gpus)) c(CUDA_VISIBLE_DEVICES = "")
}

# R_LIBS for a session that attaches keras3. Without keras3 the test is skipped.
libraries <- function() {
  there <- length(find.package("keras3", quiet = TRUE)) > 0L
  testthat::skip_if_not(there, "keras3 is not here (tools/setup-keras3.sh)")
  paste(.libPaths(), collapse = .Platform$path.sep)
}

# For tests that only `make test-all` runs, with the reason.
skip_slow <- function(why) {
  testthat::skip_if(!nzchar(Sys.getenv("SLOW")), paste("slow, make test-all runs it:", why))
}
