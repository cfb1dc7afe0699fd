# The run through tfdistr from R, with the network and the data of seed_cnn.py.
library(tfdistr)

arguments <- commandArgs(trailingOnly = TRUE)
seed_cnn <- reticulate::import_from_path("seed_cnn", "benchmarks")
data <- seed_cnn$data()

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

cat(sprintf("%.3f\n", as.numeric(Sys.time())))
fit <- distributed_fit(
  model, data[[1]], data[[2]],
  cluster = local_cluster(as.integer(arguments[[1]])), per_worker_batch_size = seed_cnn$PER_WORKER_BATCH,
  epochs = seed_cnn$EPOCHS, seed = 1, verbose = 0, run_dir = arguments[[2]]
)
