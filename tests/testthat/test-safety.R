# The addresses in /proc/net that this process listens on, as R code that workers can be sent: 127.0.0.1 is
# 0100007F there, and the end of its IPv6 form.
listening <- function() {
  files <- suppressWarnings(Sys.readlink(list.files("/proc/self/fd", full.names = TRUE)))
  tables <- lapply(c("/proc/net/tcp", "/proc/net/tcp6"), function(table) {
    utils::read.table(table, skip = 1L, fill = TRUE, colClasses = "character")
  })
  unlist(lapply(tables, function(table) {
    own <- paste0("socket:[", table[[10L]], "]") %in% files & table[[4L]] == "0A"
    sub(":.*", "", table[[2L]][own])
  }))
}

test_that("R workers listen on the loopback interface only, and what they start is not changed", {
  skip_slow("a job trains while it is attacked")
  skip_on_os(c("mac", "windows"))
  folder <- withr::local_tempdir()
  look <- listening
  digits <- some_digits()
  callbacks <- function() {
    keras <- reticulate::import("keras")
    report <- function(epoch, logs) {
      left <- list(addresses = look(), preload = Sys.getenv("LD_PRELOAD"), token = Sys.getenv("TOKEN"))
      saveRDS(left, file.path(folder, Sys.getpid()))
    }
    list(keras$callbacks$LambdaCallback(on_epoch_end = report))
  }
  fit <- distributed_fit(
    small_model, digits$x, digits$y,
    cluster = local_cluster(2, env = c(TOKEN = "s3 cr3t", LD_PRELOAD = "libm.so.6")), batch_size = 64,
    seed = 1, strategy = multi_worker_mirrored(communication = "ring"), callbacks = callbacks
  )
  expect_identical(fit$workers$status, c("done", "done"))
  left <- lapply(list.files(folder, full.names = TRUE), readRDS)
  expect_length(left, 2L)
  for (worker in left) {
    expect_identical(worker$addresses, "0000000000000000FFFF00000100007F")
    expect_identical(worker$preload, "libm.so.6")
    expect_identical(worker$token, "s3 cr3t")
  }
})

test_that("functions are read from a run directory of the user's only", {
  folder <- withr::local_tempdir()
  save_functions(list(model = function() 1), 1L, folder)
  file <- file.path(folder, "job.rds")
  expect_identical(load_functions(folder)$model(), 1)
  Sys.chmod(file, "0620", use_umask = FALSE)
  expect_error(load_functions(folder), "job.rds: others can write to it (mode 620)", fixed = TRUE)
  Sys.chmod(file, "0600", use_umask = FALSE)
  Sys.chmod(folder, "0770", use_umask = FALSE)
  expect_error(load_functions(folder), "others can write to it (mode 770)", fixed = TRUE)
})

test_that("a fit changes neither R's functions nor the global environment of the session", {
  ours <- list(quit = quit, q = q, print = print, warning = warning)
  variables <- function() as.list(globalenv(), all.names = TRUE, sorted = TRUE)
  set.seed(1) # the session has a generator, whose state the next draw changes
  digits <- some_digits()
  before <- variables()
  fit <- distributed_fit(small_model, digits$x, digits$y, seed = 2)
  read <- unserialize(serialize(fit, NULL))
  expect_identical(predict(read, digits$x), predict(fit, digits$x))
  expect_identical(variables(), before)
  expect_identical(list(quit = quit, q = q, print = print, warning = warning), ours)
})
