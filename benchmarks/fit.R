# Fits through tfdistr from R, one after another in one session, as fit.py has them: fit.R JSON.
# The arrays are those of Python: R has no bytes that are numbers, and its integers are four times as large.
library(tfdistr)

networks <- reticulate::import("networks")
unconverted <- reticulate::import("networks", convert = FALSE)

model_of <- function(name) {
  function() {
    keras <- reticulate::import("keras")
    layers <- keras$layers
    network <- keras$Sequential(list(
      layers$Rescaling(1 / 255),
      layers$Conv2D(32L, 3L, activation = "relu"),
      layers$MaxPooling2D(),
      layers$Flatten(),
      layers$Dense(networks$DENSE[[name]], activation = "relu"),
      layers$Dense(10L, activation = "softmax")
    ))
    sgd <- keras$optimizers$SGD(learning_rate = 0.001)
    network$compile(sgd, "sparse_categorical_crossentropy", metrics = list("accuracy"))
    network
  }
}

# A function of R that returns the next batch.
generator <- function(x, y, batch) {
  x <- reticulate::py_to_r(x)
  y <- reticulate::py_to_r(y)
  step <- 0L
  function() {
    rows <- (step * batch) %% length(y) + seq_len(batch)
    step <<- step + 1L # nolint
    list(x[rows, , , , drop = FALSE], y[rows])
  }
}

callbacks_of <- function(folder, after) {
  function() {
    read <- function(index, logs) logs$loss
    lambda <- reticulate::import("keras")$callbacks$LambdaCallback
    c(
      list(reticulate::import("measure")$callback(folder)),
      if (identical(after, "epoch")) list(lambda(on_epoch_end = read)),
      if (identical(after, "batch")) list(lambda(on_train_batch_end = read))
    )
  }
}

fit <- function(folder, network = "seed", workers = NULL, cores = NULL, warm = TRUE, communication = "auto",
                steps = NULL, epochs = NULL, examples = NULL, data = "arrays", callback = NULL) {
  arrays <- unconverted$data(network, examples)
  x <- reticulate::py_get_item(arrays, 0L)
  y <- reticulate::py_get_item(arrays, 1L)
  size <- networks$PER_WORKER_BATCH
  given <- if (data == "arrays") list(x, y, batch_size = per_worker(size)) else list(generator(x, y, size))
  if (is.null(epochs)) epochs <- if (is.null(steps)) networks$NETWORKS[[network]]$epochs else 2
  writeLines(sprintf("%.3f", as.numeric(Sys.time())), file.path(folder, "called"))
  do.call(distributed_fit, c(list(model_of(network)), given, list(
    cluster = if (!is.null(workers)) local_cluster(workers, cores_per_worker = cores, warm = warm),
    strategy = multi_worker_mirrored(communication = communication), epochs = epochs, steps_per_epoch = steps,
    seed = 1, verbose = 0, callbacks = callbacks_of(folder, callback), run_dir = file.path(folder, "run")
  )))
}

calls <- jsonlite::fromJSON(commandArgs(trailingOnly = TRUE)[[1L]], simplifyVector = FALSE)
for (call in calls) do.call(fit, call)
