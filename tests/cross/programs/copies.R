# nolint start: undesirable_operator_linter. The way of the data, without a job.
# How often a large array of R is copied: prints, as JSON, memory in units of the array's size.
#
# Arguments: an empty folder; then, for each measurement, what is done ("read", "write", "workers") and the
# kind of the array.
arguments <- commandArgs(TRUE)
suppressPackageStartupMessages(library(tfdistr))

# Fields of Linux's /proc/self/status, in bytes: the memory of this process, now or at most.
memory <- function(field) {
  line <- grep(paste0("^", field, ":"), readLines("/proc/self/status"), value = TRUE)
  as.numeric(gsub("[^0-9]", "", line)) * 1024
}

# Frees what nobody has any more, in both languages.
collect <- function() {
  invisible(gc())
  invisible(reticulate::import("gc")$collect())
}

# The memory that code needs at most, beside the memory before it.
most_of <- function(code) {
  collect()
  writeLines("5", "/proc/self/clear_refs") # VmHWM begins again
  before <- memory("VmRSS")
  code
  memory("VmHWM") - before
}

rows <- 2^17 # of 64 columns: 64 MiB of doubles
made <- function(kind, rows) {
  switch(kind,
    double = matrix(as.double(seq_len(rows * 64)), rows),
    integer = matrix(seq_len(rows * 64), rows) + 0L,
    vector = as.double(seq_len(rows * 64)) + 0,
    # What the user has converted: it is not copied again.
    float32 = reticulate::np_array(matrix(as.double(seq_len(rows * 64)), rows), "float32")
  )
}

sources <- reticulate::import("tfdistr.data.source", convert = FALSE)
read <- function(x) sources$make_source(tfdistr:::python_data(x, "x"))$by_rows
write <- function(x, folder) {
  tfdistr:::core()$save_value(sources$make_source(tfdistr:::python_data(x, "x")), folder, "job")
}

# One step. Each worker says how much memory of its own it has; the file of the job belongs to all of them.
train <- function(x, cluster, run_dir) {
  model <- function() {
    keras <- reticulate::import("keras")
    model <- keras$Sequential(list(keras$layers$Dense(1L, use_bias = FALSE)))
    model$compile("sgd", "mse")
    model
  }
  say <- function() {
    keras <- reticulate::import("keras")
    list(keras$callbacks$LambdaCallback(on_train_end = function(logs) {
      own <- format(memory("RssAnon"), scientific = FALSE)
      writeLines(own, file.path(run_dir, paste0("own-", Sys.getpid())))
    }))
  }
  distributed_fit(
    model, x, rep(0, nrow(x)),
    cluster = cluster, run_dir = run_dir, callbacks = say, steps_per_epoch = 1, seed = 1
  )
}

own_of_workers <- function(run_dir) {
  found <- list.files(run_dir, "^own-", full.names = TRUE)
  stopifnot(length(found) == 2L)
  max(as.numeric(vapply(found, readLines, "")))
}

on_workers <- function(x, small, folder) {
  cluster <- local_cluster(2)
  folders <- file.path(folder, c("small", "large"))
  train(small, cluster, folders[[1L]])
  here <- most_of(train(x, cluster, folders[[2L]]))
  written <- file.size(file.path(folders[[2L]], "job.buffers"))
  worker <- own_of_workers(folders[[2L]]) - own_of_workers(folders[[1L]])
  list(here = here, written = written, worker = worker)
}

measure <- function(what, kind, folder) {
  dir.create(folder)
  x <- made(kind, rows)
  small <- made(kind, 128)
  counted <- switch(what,
    read = {
      read(small)
      list(here = most_of(read(x)))
    },
    write = {
      write(small, folder)
      here <- most_of(write(x, folder))
      list(here = here, written = file.size(file.path(folder, "job.buffers")))
    },
    workers = on_workers(x, small, folder)
  )
  of_python <- inherits(x, "python.builtin.object")
  size <- if (of_python) reticulate::py_to_r(x$nbytes) else as.numeric(object.size(x))
  lapply(counted, function(bytes) bytes / size)
}

asked <- matrix(arguments[-1L], 2L)
found <- lapply(seq_len(ncol(asked)), function(number) {
  measure(asked[[1L, number]], asked[[2L, number]], file.path(arguments[[1L]], number))
})
cat(jsonlite::toJSON(found, auto_unbox = TRUE), "\n")
# nolint end
