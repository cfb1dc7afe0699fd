test_that("what is marked runs on the chief alone, one worker stops all, and warnings are given once", {
  notes <- withr::local_tempdir()
  digits <- some_digits()
  callbacks <- function() {
    keras <- reticulate::import("keras")
    index <- reticulate::import("tensorflow")$distribute$get_strategy()$worker_index
    note <- function(epoch, logs) cat(index, "\n", file = file.path(notes, "written"), append = TRUE)
    stops <- reticulate::PyClass("Stops", inherit = keras$callbacks$Callback, list(
      on_epoch_end = function(self, epoch, logs = NULL) {
        model <- self$model
        if (index == 1L && epoch == 1L) model$stop_training <- TRUE
        NULL
      }
    ))
    list(chief_only(keras$callbacks$LambdaCallback(on_epoch_end = note)), stops())
  }
  given <- warnings_of(fit <- distributed_fit(
    normalizing_model, digits$x, digits$y,
    cluster = local_cluster(workers = 2), epochs = 5, seed = 1, callbacks = callbacks, verbose = 0
  ))
  expect_identical(lengths(fit$history), c(loss = 2L))
  expect_identical(trimws(readLines(file.path(notes, "written"))), c("0", "0"))
  expect_length(given, 1L)
  expect_match(conditionMessage(given[[1L]]), "^norm: each worker normalizes with its own rows")
})
