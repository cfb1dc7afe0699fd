test_that("a worker that makes no step is named with R's calls", {
  stuck <- function() repeat Sys.sleep(0.01)
  otherwise <- small_model
  model <- function() {
    strategy <- reticulate::import("tensorflow")$distribute$get_strategy()
    if (strategy$worker_index == 1L) stuck()
    otherwise()
  }
  digits <- some_digits()
  error <- expect_error(
    distributed_fit(
      model, digits$x, digits$y,
      cluster = local_cluster(2), verbose = 0, failures = on_failure(step_timeout = 8)
    ),
    class = "tfdistr_error_worker_failed"
  )
  withr::defer(unlink(dirname(dirname(error$log)), recursive = TRUE)) # kept, as the job failed
  expect_identical(error$worker, 1L)
  message <- conditionMessage(error)
  expect_match(message, "made no step within 8 s, which is `step_timeout`", fixed = TRUE)
  expect_match(message, "R call stack (innermost last):", fixed = TRUE)
  expect_match(message, "stuck()", fixed = TRUE)
})

test_that("without workers, this session itself has made no step", {
  keras <- reticulate::import("keras")
  waits <- list(keras$callbacks$LambdaCallback(on_epoch_end = function(epoch, logs) Sys.sleep(30)))
  digits <- some_digits()
  error <- expect_error(
    distributed_fit(
      small_model, digits$x, digits$y,
      callbacks = waits, verbose = 0, failures = on_failure(step_timeout = 2)
    ),
    class = "tfdistr_error_step_timeout"
  )
  expect_match(conditionMessage(error), "made no step within 2 s, which is `step_timeout`", fixed = TRUE)
})

test_that("a trace, which holds interrupts back, is interrupted too", {
  slow_to_trace <- function() {
    model <- small_model()
    code <- "
def loss(y, predicted):
    import keras, time
    time.sleep(60)
    return keras.ops.mean(predicted)
"
    model$compile("sgd", loss = reticulate::py_run_string(code, local = TRUE)$loss)
    model
  }
  digits <- some_digits()
  error <- expect_error(
    distributed_fit(slow_to_trace, digits$x, digits$y, verbose = 0, failures = on_failure(step_timeout = 2)),
    class = "tfdistr_error_step_timeout"
  )
  expect_match(conditionMessage(error), "in loss", fixed = TRUE)
})
