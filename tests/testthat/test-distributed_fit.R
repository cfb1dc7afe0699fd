# The same job in this process, on one worker and on two, made of everything that may be an R function.
job <- function(digits, notes, cluster) {
  keras <- reticulate::import("keras")
  tf <- reticulate::import("tensorflow")
  centre <- data.frame(mean = 0.5, unused = "text")
  weights <- array(seq(0.5, 1.5, length.out = 10L))
  not_sendable <- tf$data$Dataset$range(3L)
  force(not_sendable) # is in the frame of the functions, which do not use it
  scaled <- function(image, label) {
    reticulate::tuple(tf$cast(image, "float32") - centre$mean, tf$cast(label, "int32"))
  }
  loss <- function(truth, prediction) {
    weight <- tf$gather(tf$constant(weights, "float32"), tf$cast(tf$reshape(truth, list(-1L)), "int32"))
    tf$reshape(weight, list(-1L)) * keras$losses$sparse_categorical_crossentropy(truth, prediction)
  }
  confidence <- function(truth, prediction) tf$reduce_max(prediction, axis = -1L)
  distributed_fit(
    function() {
      keras <- reticulate::import("keras")
      model <- keras$Sequential(list(
        keras$layers$Flatten(),
        keras$layers$Dense(10L, "softmax", kernel_initializer = keras$initializers$Constant(rnorm(1L)))
      ))
      model$compile(
        keras$optimizers$Adam(0.01), loss,
        metrics = list(keras$metrics$MeanMetricWrapper(confidence, name = "confidence"))
      )
      model
    },
    function(ctx) {
      order <- sample(dim(digits$x)[[1L]]) # the same in all workers, or the examples would be wrong
      dataset <- tf$data$Dataset$from_tensor_slices(
        reticulate::tuple(digits$x[order, , , , drop = FALSE], digits$y[order])
      )
      ctx$shard(dataset)$map(scaled)
    },
    cluster = cluster,
    batch_size = 50, epochs = 2, seed = 7,
    validation_data = list(digits$x - 0.5, digits$y),
    callbacks = function() {
      note <- function(epoch, logs) {
        cat(epoch, names(logs), "\n", file = file.path(notes, Sys.getpid()), append = TRUE)
      }
      list(keras$callbacks$LambdaCallback(on_epoch_end = note))
    }
  )
}

test_that("one call gives the same numbers in this process, on one worker and on two", {
  notes <- withr::local_tempdir()
  digits <- some_digits()
  set.seed(1)
  next_random <- runif(1)
  set.seed(1)
  here <- job(digits, notes, NULL)
  expect_identical(runif(1), next_random)
  one <- job(digits, notes, local_cluster(workers = 1))
  two <- job(digits, notes, local_cluster(workers = 2))

  expect_named(here$history, c("confidence", "loss", "val_confidence", "val_loss"), ignore.order = TRUE)
  expect_identical(lengths(two$history, use.names = FALSE), rep(2L, 4L))
  expect_equal(one$history, here$history, tolerance = 1e-6)
  expect_equal(two$history, here$history, tolerance = 1e-6)
  expect_lt(difference(one$model, here$model), 1e-6)
  expect_lt(difference(two$model, here$model), 1e-6)
  expect_lt(here$history$loss[[2L]], here$history$loss[[1L]])

  # The callback ran in every process.
  expect_setequal(list.files(notes), as.character(c(Sys.getpid(), one$workers$pid, two$workers$pid)))
  expect_match(readLines(file.path(notes, two$workers$pid[[2L]])), "loss", all = TRUE)
  expect_identical(two$workers$status, c("done", "done"))
  expect_false(any(runs(c(one$workers$pid, two$workers$pid))))
  expect_identical(two$params$workers, 2L)
  expect_identical(unname(file.mode(file.path(two$run_dir, "job.rds"))), as.octmode("600"))
})

test_that("data frames, factors, weights and Python's callbacks reach the workers", {
  keras <- reticulate::import("keras")
  model <- function() {
    model <- keras$Sequential(list(keras$layers$Dense(3L, "softmax", kernel_initializer = "ones")))
    model$compile("sgd", "sparse_categorical_crossentropy", weighted_metrics = list("accuracy"))
    model
  }
  fit <- function(cluster, size, run_dir = NULL) {
    distributed_fit(
      model, iris[1:4], iris$Species,
      cluster = cluster, batch_size = per_worker(size), epochs = 5, steps_per_epoch = 3,
      validation_data = list(iris[140:150, 1:4], iris$Species[140:150]), validation_steps = 1,
      callbacks = list(keras$callbacks$EarlyStopping("loss", patience = 0L, min_delta = 1)),
      sample_weight = seq(0.5, 1.5, length.out = 150), seed = 3, verbose = 2, run_dir = run_dir
    )
  }
  run_dir <- file.path(withr::local_tempdir(), "a folder with spaces")
  suppressMessages(here <- fit(NULL, 40))
  lines <- cli::cli_fmt(two <- fit(local_cluster(workers = 2, follow = TRUE), 20, run_dir))

  expect_identical(lengths(here$history, use.names = FALSE), rep(2L, 4L)) # stopped early
  expect_equal(two$history, here$history, tolerance = 1e-6)
  expect_lt(difference(two$model, here$model), 1e-6)
  expect_identical(two$run_dir, run_dir)
  expect_false("tmp" %in% list.files(run_dir)) # the workers' temporary files
  expect_identical(two$workers$log, file.path(run_dir, "logs", c("worker-0.log", "worker-1.log")))
  expect_match(lines, "^Epoch 2/5  ", all = FALSE)
  expect_match(lines, "^\\[worker 1\\] ", all = FALSE)
})

test_that("callbacks with R code are made in each worker by the code of the argument", {
  keras <- reticulate::import("keras")
  notes <- withr::local_tempdir()
  note <- function(word) {
    keras$callbacks$LambdaCallback(on_epoch_end = function(epoch, logs) {
      cat(word, epoch, "\n", file = file.path(notes, paste0("worker-", worker_index())), append = TRUE)
    })
  }
  stops <- keras$callbacks$EarlyStopping("loss", patience = 0L, min_delta = 10) # as an object of the session
  train <- function(...) {
    digits <- some_digits()
    distributed_fit(small_model, digits$x, digits$y, epochs = 3, cluster = local_cluster(2), ...)
  }
  word <- "listed"
  expect_length(train(callbacks = list(note(word), stops))$history$loss, 2L)
  made <- function(word) list(stops, note(word))
  train(callbacks = made("made"))
  digits <- some_digits()
  passed_on <- function(...) compare_strategies(small_model, digits$x, digits$y, ...)
  passed_on(strategies = "multi_worker_mirrored", epochs = 2, callbacks = list(note("passed on")))
  for (worker in c("worker-0", "worker-1")) {
    lines <- readLines(file.path(notes, worker))
    expect_identical(lines, paste(rep(c("listed", "made", "passed on"), each = 2L), c(0, 1), ""))
  }
})

test_that("an error of R in one worker arrives with its message, its call stack and its log", {
  build <- small_model
  inner <- function(number) stop("no {model} for the number ", number)
  model <- function() {
    tf <- reticulate::import("tensorflow")
    if (tf$distribute$get_strategy()$worker_index == 1L) inner(41 + 1)
    build()
  }
  digits <- some_digits()
  begin <- Sys.time()
  error <- expect_error(
    distributed_fit(model, digits$x, digits$y, cluster = local_cluster(workers = 2)),
    class = "tfdistr_error_worker_failed"
  )
  expect_lt(as.numeric(Sys.time() - begin, units = "secs"), 60)
  withr::defer(unlink(dirname(dirname(error$log)), recursive = TRUE)) # kept, as the job failed

  expect_s3_class(error, "tfdistr_error")
  expect_identical(error$worker, 1L)
  expect_identical(error$host, unname(Sys.info()[["nodename"]]))
  expect_identical(error$workers$pid[[2L]], error$pid)
  expect_identical(error$workers$status[[2L]], "failed")
  expect_false(any(runs(error$workers$pid)))
  message <- conditionMessage(error)
  failed <- "Worker 1 of 2 on .* failed: simpleError in inner\\(41 [+] 1\\) [(]test-distributed_fit.R#"
  expect_match(message, failed)
  expect_match(message, "#[0-9]+[)]: no [{]model[}] for the number 42")
  expect_match(message, 'R call stack (innermost last):', fixed = TRUE)
  expect_match(message, '  1: model()\n  2: inner(41 + 1) (test', fixed = TRUE)
  expect_false(grepl("Traceback|python_function", message)) # Python's frames are in the log only
  expect_match(message, error$log, fixed = TRUE)
  expect_match(error$traceback, 'stop("no {model} for the number ", number)', fixed = TRUE)
  expect_match(readLines(error$log), "no {model} for the number 42", fixed = TRUE, all = FALSE)
  expect_s3_class(error$exception, c("tfdistr.errors.WorkerFailedError", "python.builtin.Exception"))
})

test_that("in this process, an error in one of the functions is raised as it is", {
  digits <- some_digits()
  failing <- function(...) rlang::abort("my {own}", class = "my_error", detail = 3)
  error <- expect_error(distributed_fit(failing, digits$x, digits$y), class = "my_error")
  expect_identical(conditionMessage(error), "my {own}")
  expect_identical(error$detail, 3)
  expect_error(distributed_fit(small_model, function(ctx) failing()), class = "my_error")
  expect_error(distributed_fit(small_model, digits$x, digits$y, callbacks = failing), class = "my_error")
  expect_error(distributed_fit(function() 3, digits$x, digits$y), class = "tfdistr_error_argument")
  # An error of Python, there or in one of the functions, stays one.
  keras <- reticulate::import("keras")
  expect_error(distributed_fit(function() keras$nothing, digits$x), class = "python.builtin.AttributeError")
})

test_that("arguments are checked before anything is started", {
  digits <- some_digits()
  fit <- function(...) {
    expect_error(
      distributed_fit(small_model, digits$x, digits$y, ...),
      class = "tfdistr_error_argument"
    )
  }
  expect_match(conditionMessage(fit(epochs = 0)), "`epochs` must be .*Received: 0.*Fix: Pass")
  expect_identical(as.character(fit(epochs = 0)$call[[1L]]), "distributed_fit")
  expect_match(conditionMessage(fit(initial_epoch = 0)), "`initial_epoch` must be .* at least 1.*Received: 0")
  expect_match(conditionMessage(fit(initial_epoch = 2)), "epochs = 1, after 1 epochs that are done")
  keras <- reticulate::import("keras")
  callback <- keras$callbacks$LambdaCallback
  show <- function(epoch, logs) NULL
  unpicklable <- callback(on_epoch_end = show)
  from_variable <- fit(cluster = local_cluster(), callbacks = unpicklable)
  expect_match(conditionMessage(from_variable), "Received: unpicklable, an object of class .*LambdaCallback")
  in_list <- fit(cluster = local_cluster(), callbacks = list(callback(), chief_only(unpicklable)))
  expect_identical(conditionMessage(in_list), conditionMessage(from_variable))
  no_callback <- fit(cluster = local_cluster(), callbacks = list(NULL, callback(on_epoch_end = show)))
  expect_match(conditionMessage(no_callback), "`callbacks` must be Keras callbacks.*Received: NULL")
})

test_that("classes can be weighted", {
  digits <- some_digits()
  fit <- function(...) {
    fit <- distributed_fit(small_model, digits$x, digits$y, batch_size = 128, seed = 1, shuffle = FALSE, ...)
    fit$history$loss
  }
  weights <- setNames(rep(0:1, 5), 0:9)
  expect_equal(fit(class_weight = weights), fit(sample_weight = weights[digits$y + 1L]), tolerance = 1e-6)
  expect_equal(fit(class_weight = as.list(weights)), fit(class_weight = weights), tolerance = 1e-6)
})

test_that("whole numbers may be doubles, and a job may have one epoch, one step and one example", {
  fit <- distributed_fit(
    small_model, array(0.5, c(1, 2)), 3,
    batch_size = 2, epochs = 1, steps_per_epoch = 1, seed = 1
  )
  expect_identical(fit$params[c("epochs", "batch_size")], list(epochs = 1L, batch_size = 2L))
  expect_identical(lengths(fit$history), c(loss = 1L))
})

test_that("seeds above R's integers are the same numbers in the result", {
  for (seed in c(2^31, 2^32 - 1)) {
    fit <- distributed_fit(small_model, array(0.5, c(1, 2)), 3, seed = seed)
    expect_identical(fit$params$seed, seed)
    expect_output(print(fit), paste("seed", format(seed, scientific = FALSE)))
  }
})

test_that("targets that are no array, and a missing folder, are refused", {
  x <- array(0.5, c(1, 2))
  refused <- function(message, ...) {
    expect_error(
      distributed_fit(small_model, x, ...), message,
      fixed = TRUE, class = "tfdistr_error_argument"
    )
  }
  refused("`y` must hold at least one array.", list())
  refused("Fix: Pass arrays, or y = NULL.", list())
  refused("`run_dir` must be a path.", 3, run_dir = NA_character_)
})
