# The job of demo.R for an R without keras3: Python's Keras builds the model.
library(tfdistr)

model <- function() {
  keras <- reticulate::import("keras")
  layers <- keras$layers
  model <- keras$Sequential(list(
    layers$Rescaling(1 / 16), layers$Conv2D(32L, 3L, activation = "relu"), layers$Flatten(),
    layers$Dense(10L, activation = "softmax")
  ))
  model$compile("adam", "sparse_categorical_crossentropy", metrics = list("accuracy"))
  model
}

fit <- distributed_fit(
  model, load_dataset("digits"),
  validation_data = load_dataset("digits", "test"),
  cluster = local_cluster(workers = 2), epochs = 5, seed = 1, verbose = 2
)
print(fit)
