# testthat over the installed package, TESTTHAT_CPUS test files side by side, by default two; an argument is
# the name of one test file, without "test-" and ".R". What the tests leave on this machine is an error, too.
filter <- commandArgs(TRUE)
mark <- paste0("OWNER_OF_TEST=", basename(tempfile()))
folder <- tempfile("tests-")
dir.create(folder)
Sys.setenv(
  NOT_CRAN = "true", # or snapshots would be skipped
  TESTTHAT_CPUS = Sys.getenv("TESTTHAT_CPUS", "2"),
  R_COVR = "true", # testthat waits 30 s for the end of its processes, instead of 3, before it kills them
  # As in tests/conftest.py.
  PYTHONPATH = paste(normalizePath(c("tests/without", "tests/startup")), collapse = .Platform$path.sep),
  OPENBLAS_NUM_THREADS = "1",
  R_NSIZE = "4M",
  OWNER_OF_TEST = sub(".*=", "", mark),
  TMPDIR = folder
)

# The processes that the tests have started, as they are known by a variable of their environment.
processes <- function() {
  found <- Filter(function(process) {
    read <- function() suppressWarnings(readBin(file.path(process, "environ"), "raw", 1e6))
    environment <- tryCatch(read(), error = function(condition) raw())
    length(grepRaw(mark, environment, fixed = TRUE)) > 0L
  }, Sys.glob("/proc/[0-9]*"))
  setdiff(basename(found), as.character(Sys.getpid()))
}

# Whether a process has a file in its memory: tests that run beside these have such files, too.
in_use <- function(file) {
  maps <- function(process) suppressWarnings(tryCatch(readLines(process), error = function(condition) ""))
  processes <- Sys.glob("/proc/[0-9]*/maps")
  any(vapply(processes, function(process) any(grepl(file, maps(process), fixed = TRUE)), NA))
}

# What is there that was not before, once what is ending has had the time for it.
left_behind <- function(shared_before) {
  end <- Sys.time() + 10
  repeat {
    shared <- Filter(Negate(in_use), setdiff(Sys.glob("/dev/shm/mpich_shm_*"), shared_before))
    # uv leaves its locks. TensorFlow removes what it has compiled of functions at the end of Python, which R
    # does without since reticulate 1.43.
    known <- "^(uv-.*[.]lock|__autograph_generated_file.*[.]py)$"
    files <- grep(known, list.files(folder), value = TRUE, invert = TRUE)
    left <- c(paste("process", processes(), recycle0 = TRUE), shared, file.path(folder, files, fsep = "/"))
    if (!length(left) || Sys.time() > end) return(left)
    Sys.sleep(0.2)
  }
}

shared_before <- Sys.glob("/dev/shm/mpich_shm_*")
testthat::test_dir(
  "tests/testthat",
  filter = if (length(filter)) paste0("^", filter, "$"),
  package = "tfdistr",
  load_package = "installed",
  reporter = testthat::ProgressReporter$new(max_failures = Inf),
  stop_on_failure = TRUE
)
left <- left_behind(shared_before)
unlink(folder, recursive = TRUE)
if (length(left)) stop("These tests have left:\n", paste(left, collapse = "\n"))
