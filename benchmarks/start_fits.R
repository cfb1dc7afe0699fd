# Runs of the seed network, one after another, as the JSON file says that is given; see start.py.
library(tfdistr)

file <- commandArgs(trailingOnly = TRUE)[[1]]
data <- reticulate::import("networks", convert = FALSE)$data("seed")
some <- reticulate::import_builtins(convert = FALSE)$slice(2560L)
x <- data[[0]][some]
y <- data[[1]][some]

model <- function() {
  keras <- reticulate::import("keras")
  layers <- keras$layers
  network <- keras$Sequential(list(
    layers$Rescaling(1 / 255),
    layers$Conv2D(32L, 3L, activation = "relu"),
    layers$MaxPooling2D(),
    layers$Flatten(),
    layers$Dense(64L, activation = "relu"),
    layers$Dense(10L, activation = "softmax")
  ))
  network$compile(
    keras$optimizers$SGD(learning_rate = 0.001), "sparse_categorical_crossentropy", metrics = list("accuracy")
  )
  network
}

fit <- function(folder, workers, communication, warm) {
  writeLines(sprintf("%.3f", as.numeric(Sys.time())), file.path(folder, "called"))
  distributed_fit(
    model, x, y,
    cluster = local_cluster(workers, warm = warm),
    strategy = multi_worker_mirrored(communication = communication), seed = 1, verbose = 0,
    run_dir = file.path(folder, "run")
  )
}

before <- file.path(dirname(file), "before")
dir.create(before)
fit(before, 1, "ring", TRUE) # until the fork server has come
for (case in jsonlite::read_json(file)) do.call(fit, case)
