# nolint start: object_usage_linter. LAYER attaches keras3.
# Trains a model whose first layer is a SavedModel, and saves the weights and the losses.
#
#   Rscript saved_model.R RESULTS LAYER FOLDER
#
# LAYER is the file that makes layer_saved_model(), FOLDER gets the SavedModel.
given <- commandArgs(TRUE)
source(given[[2L]])
library(tfdistr)
folder <- given[[3L]]

x <- unname(as.matrix(iris[, 1:4])) / 8
y <- as.integer(iris$Species) - 1L

train <- function(trainable, ...) {
  model <- function() {
    keras_model_sequential(4) |>
      layer_saved_model(folder, trainable = trainable) |>
      layer_dense(3, kernel_initializer = initializer_constant(0.1)) |>
      compile(optimizer_sgd(0.5), loss_sparse_categorical_crossentropy(from_logits = TRUE))
  }
  fit <- distributed_fit(model, x, y, batch_size = 40, epochs = 2, seed = 1, verbose = 0, ...)
  list(weights = fit$model$get_weights(), loss = fit$history$loss)
}

set_random_seed(1L)
encoder <- keras_model_sequential(4) |> layer_dense(5, activation = "tanh")
export_savedmodel(encoder, folder)
two <- local_cluster(2, env = c(CUDA_VISIBLE_DEVICES = ""))
results <- lapply(c(trained = TRUE, frozen = FALSE), function(trainable) {
  list(one = train(trainable), two = train(trainable, cluster = two))
})
saveRDS(c(results, list(saved = encoder$get_weights())), given[[1L]])
# nolint end
