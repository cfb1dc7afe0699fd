job <- c(list(small_model), some_digits(), list(seed = 1, epochs = 4, verbose = 0))

small_fit <- function(...) do.call(distributed_fit, c(job, list(...)))

test_that("the function runs in this session, and stops all workers", {
  for (cluster in list(NULL, local_cluster(2))) {
    seen <- new.env()
    output <- textConnection("written", "w", local = TRUE)
    record <- in_session(function(epoch, logs) {
      seen$losses <- c(seen$losses, logs$loss)
      seen$epochs <- c(seen$epochs, epoch)
      writeLines(names(logs), output)
      globalenv() # Python need not have it
    })
    stops <- in_session(function(epoch, logs) if (epoch == 2L) "stop")
    fit <- small_fit(cluster = cluster, callbacks = list(record, stops))
    close(output)
    expect_identical(seen$losses, fit$history$loss)
    expect_identical(seen$epochs, 1:2)
    expect_identical(written, c("loss", "loss"))
  }
})

test_that("its errors, warnings and messages are those of this session", {
  run <- function(cluster, code) {
    small_fit(cluster = cluster, callbacks = list(in_session(function(epoch, logs) code())))
  }
  inner <- function() rlang::abort("in {braces}", class = "mine", data = 42)
  workers <- local_cluster(2)
  for (cluster in list(NULL, workers)) {
    error <- expect_error(run(cluster, inner), "in {braces}", fixed = TRUE, class = "mine")
    expect_identical(error$data, 42)
  }
  warned <- tryCatch(run(NULL, function() warning("look")), warning = identity)
  expect_identical(conditionMessage(warned), "look")
  expect_message(run(NULL, function() message("hello")), "hello")
  # As progressr does: a handler outside of the call ends the condition by a restart within the function.
  progress <- function() withRestarts(signalCondition(rlang::cnd("progression")), muffle = function() NULL)
  steps <- new.env()
  withCallingHandlers(run(NULL, progress), progression = function(condition) {
    steps$n <- c(steps$n, 1)
    invokeRestart("muffle")
  })
  expect_length(steps$n, 4L)
  # A handler of any condition may leave the call.
  leave <- function() signalCondition(rlang::cnd("my_condition", data = 42))
  left <- tryCatch(run(NULL, leave), my_condition = function(condition) condition$data)
  expect_identical(left, 42)
  expect_error(callCC(function(leave) run(NULL, function() leave("left"))), "was left by a jump")
  expect_length(run(workers, function() NULL)$history$loss, 4L) # Python is whole
})

test_that("what is no function of two arguments is refused", {
  received <- function(given) {
    error <- expect_error(in_session(given), "must be a function of two arguments, the epoch and the logs")
    expect_s3_class(error, "tfdistr_error_argument")
    sub("(?s).*Received: (.*?)\n.*", "\\1", conditionMessage(error), perl = TRUE)
  }
  expect_identical(received(5), "a number (5)")
  expect_identical(received(function() 1), "a function of ()")
  expect_identical(received(function(epoch) 1), "a function of (epoch)")
  expect_identical(received(function(a, b, c) 1), "a function of (a, b, c)")
  for (fun in list(function(...) 1, function(a, b, c = 1) 1, function(a, ...) 1, print, paste)) {
    expect_s3_class(in_session(fun), "tfdistr.training.in_session.InSession")
  }
})
