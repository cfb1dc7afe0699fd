# Train a small convolutional network on two workers to read handwritten digits.
library(keras3)
library(tfdistr)

model <- function() {
  keras_model_sequential() |>
    layer_rescaling(1 / 16) |>
    layer_conv_2d(32, 3, activation = "relu") |>
    layer_flatten() |>
    layer_dense(10, activation = "softmax") |>
    compile("adam", "sparse_categorical_crossentropy", metrics = "accuracy")
}

fit <- distributed_fit(
  model, load_dataset("digits"),
  validation_data = load_dataset("digits", "test"),
  cluster = local_cluster(workers = 2), epochs = 5, seed = 1, verbose = 2
)
print(fit)
