# A run through tfdistr from R, with a CNN and the data of networks.py: the arrays of Python themselves,
# for R has no bytes that are numbers, and its integers are four times as large.
# Usage: fit.R NETWORK FOLDER WORKERS COMMUNICATION [STEPS of two epochs]
library(tfdistr)

arguments <- commandArgs(trailingOnly = TRUE)
name <- arguments[[1]]
folder <- arguments[[2]]
networks <- reticulate::import("networks")
data <- reticulate::import("networks", convert = FALSE)$data(name)
dense <- networks$DENSE[[name]]
steps <- if (length(arguments) > 4L) as.integer(arguments[[5]])

model <- function() {
  keras <- reticulate::import("keras")
  layers <- keras$layers
  network <- keras$Sequential(list(
    layers$Rescaling(1 / 255),
    layers$Conv2D(32L, 3L, activation = "relu"),
    layers$MaxPooling2D(),
    layers$Flatten(),
    layers$Dense(dense, activation = "relu"),
    layers$Dense(10L, activation = "softmax")
  ))
  network$compile(
    keras$optimizers$SGD(learning_rate = 0.001), "sparse_categorical_crossentropy", metrics = list("accuracy")
  )
  network
}

writeLines(sprintf("%.3f", as.numeric(Sys.time())), file.path(folder, "called"))
fit <- distributed_fit(
  model, reticulate::py_get_item(data, 0L), reticulate::py_get_item(data, 1L),
  cluster = local_cluster(as.integer(arguments[[3]]), cores_per_worker = 1L),
  strategy = multi_worker_mirrored(communication = arguments[[4]]),
  batch_size = per_worker(networks$PER_WORKER_BATCH), seed = 1,
  epochs = if (is.null(steps)) networks$NETWORKS[[name]]$epochs else 2, steps_per_epoch = steps,
  callbacks = function() list(reticulate::import("measure")$callback(folder)),
  verbose = 0, run_dir = file.path(folder, "run")
)
