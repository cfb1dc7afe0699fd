# nolint start: object_usage_linter. The functions of keras3, which is not here where lintr looks.
# One of the workers that TF_CONFIG describes, or the only one: a model written with pipes of keras3.
output <- commandArgs(TRUE)[[1L]]
suppressPackageStartupMessages({
  library(keras3)
  library(tfdistr)
})

digits <- load_dataset("digits", "test")$arrays()
model <- function() {
  model <- keras_model_sequential() |>
    layer_conv_2d(4, 3, activation = "relu") |>
    layer_flatten() |>
    layer_dense(10, activation = "softmax")
  model |> compile("adam", "sparse_categorical_crossentropy", metrics = "accuracy")
  model
}
fit <- distributed_fit(
  model, digits[[1L]][1:120, , , , drop = FALSE] / 16, as.integer(digits[[2L]][1:120]),
  batch_size = 60, epochs = 2, seed = 3
)
saveRDS(list(history = fit$history, weights = get_weights(fit$model), workers = nrow(fit$workers)), output)
# nolint end
