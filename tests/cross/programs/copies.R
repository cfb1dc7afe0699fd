# nolint start: undesirable_operator_linter. The way of the data, without a job.
# How often a large array of R is copied: prints, as JSON, memory in units of the array's size.
#
# Arguments: an empty folder; then, for each measurement, what is done ("read" or "write") and the kind of
# the array.
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
    }
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
