# A session of R whose calls are interrupted. In Python: interrupted.py, which says how.
Sys.setenv(TF_CPP_MIN_LOG_LEVEL = "2")
library(tfdistr)
phases <- reticulate::import("phases", convert = FALSE)
in_session <- function() reticulate::py_to_r(phases$in_session())

x <- matrix(1, 64, 4)
y <- rep(1, 64)
long <- 1e6

model <- function(...) {
  keras <- reticulate::import("keras")
  made <- keras$Sequential(list(..., keras$layers$Dense(1L)))
  made$compile("sgd", "mse")
  made
}

slow_model <- function() {
  if (in_session()) stay(60)
  model()
}

compiling_model <- function() model(reticulate::import("phases")$compiling())

# As phases$reach() does, in R.
stay <- function(seconds) {
  file.create(file.path(Sys.getenv("PHASE_FOLDER"), "reached"))
  until <- Sys.time() + seconds
  while (Sys.time() < until) Sys.sleep(0.02)
}

# A callback of R that stays in the second epoch.
in_epoch <- function(seconds) {
  function() {
    begins <- function(epoch, logs) if (epoch == 1) stay(seconds)
    list(reticulate::import("keras")$callbacks$LambdaCallback(on_epoch_begin = begins))
  }
}

slow_data <- function() reticulate::import("phases", convert = FALSE)$examples()

slow_inputs <- function() slow_data()$map(function(x, y) x)

call <- function(phase, here, run_dir) {
  wait <- if (here) 0 else 60 # this process continues; a worker waits
  cluster <- if (!here) local_cluster(2)
  fit <- function(build = model, inputs = x, targets = y, ..., on = cluster, epochs = long) {
    distributed_fit(
      build, inputs, targets,
      cluster = on, epochs = epochs, verbose = 0, run_dir = run_dir, ...
    )
  }
  switch(phase,
    data = if (here) fit(inputs = slow_data, targets = NULL) else fit(callbacks = list(phases$Written())),
    "cold start" = , meeting = fit(on = local_cluster(2, warm = FALSE)),
    "warm start" = fit(),
    "first step" = fit(compiling_model),
    epoch = fit(callbacks = in_epoch(wait)),
    callback = fit(callbacks = in_epoch(60)),
    session = fit(callbacks = list(tfdistr::in_session(function(epoch, logs) stay(60)))),
    validation = fit(
      callbacks = function() list(reticulate::import("phases")$OnTest(wait)),
      validation_data = list(matrix(1, 1e5, 4), rep(1, 1e5))
    ),
    checkpoint = fit(checkpoint_every = 1),
    result = fit(slow_model, epochs = 1)$model,
    evaluate = evaluate(trained(here), slow_data, cluster = cluster),
    predict = predict(trained(here), slow_inputs, cluster = cluster),
    compare = compare_strategies(model, x, y, epochs = long, callbacks = in_epoch(60)),
    stop("there is no phase ", phase)
  )
}

quick <- function(here) {
  distributed_fit(model, x, y, cluster = if (!here) local_cluster(2), epochs = 2, verbose = 0)
}

done <- new.env()
trained <- function(here) {
  if (is.null(done$fit)) done$fit <- quick(here)
  done$fit
}

say <- function(...) cat("SESSION: ", ..., "\n", sep = "")

folder <- Sys.getenv("PHASE_FOLDER")
input <- file("stdin", "r")
cat(Sys.getpid(), file = file.path(folder, "pid"))
while (length(line <- readLines(input, 1L))) {
  asked <- jsonlite::fromJSON(line)
  if (asked$phase %in% c("evaluate", "predict")) trained(asked$here)
  ended <- tryCatch(
    {
      file.create(file.path(folder, "begun"))
      call(asked$phase, asked$here, asked$run_dir)
      "returned"
    },
    interrupt = function(condition) "interrupt KeyboardInterrupt",
    error = function(error) paste("error", gsub("\n", " | ", conditionMessage(error)))
  )
  say(ended)
  say("next ", length(quick(asked$here)$history$loss))
}
