# Two machines, a chief and a worker: the same script on each, started with a TF_CONFIG of its own.
#
#   Rscript examples/two_machines/task.R MODEL_FILE
#
# MODEL_FILE (such as /shared/digits.keras) is in a folder that both machines see. The lines to run before it,
# one for each machine, are printed by
#
#   Rscript -e 'library(tfdistr); plan <- tf_config(worker = "b:2222", chief = "a:2222")' \
#           -e 'cat(cluster_lines(plan, "bash"), sep = "\n")'
#
# The chief alone saves the model; both then load it and evaluate it together. Each prints its own line:
#
#   chief 0 of 2 tasks: loss 0.3620, accuracy 0.8917
#   worker 0 of 2 tasks: loss 0.3620, accuracy 0.8917
#
# With worker = c("a:2222", "b:2222") the first worker is the chief, and they are "worker 0" and "worker 1".
# Without TF_CONFIG one process does it all. The numbers are the same.
library(keras3)
library(tfdistr)
strategy <- make_strategy() # before anything else uses TensorFlow

set_random_seed(1) # the same weights and order of images as without TF_CONFIG

batch <- 64L # the global batch: each task takes its half of every batch

network <- function() {
  keras_model_sequential(c(8, 8, 1)) |>
    layer_rescaling(1 / 16) |>
    layer_conv_2d(16, 3, activation = "relu") |>
    layer_flatten() |>
    layer_dense(10) |>
    compile(
      optimizer_adam(0.005), loss_sparse_categorical_crossentropy(from_logits = TRUE), metrics = "accuracy"
    )
}

model_file <- commandArgs(trailingOnly = TRUE)[[1]]
images <- load_dataset("digits")$dataset()$shuffle(1437L, seed = 1L)$batch(batch)
test_images <- load_dataset("digits", "test")$dataset()$batch(batch)

with(strategy$scope(), model <- network())
history <- model |> fit(images, epochs = 4, verbose = 0)

if (is_chief()) save_model(model, model_file)
strategy$barrier("saved", timeout = 60) # the file is there only now

with(strategy$scope(), model <- load_model(model_file))
result <- model |> evaluate(test_images, verbose = 0)

cluster <- cluster_from_env()
task <- if (is.null(cluster)) "chief 0" else paste(cluster$task$type, cluster$task$index)
tasks <- if (is.null(cluster)) 1L else cluster$num_workers
cat(sprintf("%s of %d tasks: loss %.4f, accuracy %.4f\n", task, tasks, result$loss, result$accuracy))
