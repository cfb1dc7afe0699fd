# Train a model that takes text, good or bad sentences, by distributed_fit() or in a custom training loop.
#
#   Rscript examples/sentences.R WAY LOG_DIR [STRATEGY [DEVICE ...]]
#
# WAY is "fit" or "loop". LOG_DIR gets the best model and the events for TensorBoard, from the chief alone.
# Start the script once, or once for each worker: with a TF_CONFIG for each, or all of them by
# `mpiexec -n 2 Rscript examples/sentences.R loop logs`. STRATEGY is "multi_worker_mirrored" by default;
# "one_device" trains in one process, on a DEVICE such as gpu:0, and so does "mirrored", by "fit", on several:
# the R functions of a loop can't run in several replicas of a process.
#
# Both ways, with one worker and with two, print the same history:
#
#        measure
#   epoch training accuracy training loss validation accuracy validation loss
#       1            0.5165        0.6950              0.5133          0.6860
#       2            0.6800        0.6480              0.7400          0.5900
#       3            0.8716        0.4841              0.8933          0.4169
#       4            0.8907        0.3712              0.8933          0.3898
#       5            0.8927        0.3527              0.8967          0.3774
#       6            0.8947        0.3437              0.8967          0.3778
library(keras3)
library(reticulate)
library(tensorflow)
library(tfdistr)

given <- commandArgs(trailingOnly = TRUE)
way <- given[[1]]
log_dir <- given[[2]]
strategy_name <- if (length(given) > 2) given[[3]] else "multi_worker_mirrored"
devices <- as.list(given[-(1:3)])

# The options of a strategy for one process: its devices.
strategy_options <- if (length(devices)) {
  if (strategy_name == "one_device") list(device = devices[[1]]) else list(devices = devices)
}

batch <- 32L # the global batch
epochs <- 20L # at most

# Texts, and what they say: 1 for good, 0 for bad. One in ten is not meant so.
sentences <- function(count, seed) {
  set.seed(seed)
  any_of <- function(...) sample(c(...), count, replace = TRUE)
  good <- runif(count) < 0.5
  negated <- runif(count) < 0.5
  word <- ifelse(good, any_of("wonderful", "lovely", "great"), any_of("awful", "boring", "poor"))
  text <- paste0(
    "The ", any_of("film", "book", "meal", "hotel", "game", "song"), " was ", ifelse(negated, "not ", ""),
    any_of("", "so ", "very "), word, "!"
  )
  label <- xor(xor(good, negated), runif(count) < 0.1)
  list(matrix(text), matrix(as.numeric(label)))
}

train_data <- sentences(997, seed = 1)
test_data <- sentences(300, seed = 2)

network <- function() {
  words <- layer_text_vectorization(ngrams = 3, output_mode = "int", output_sequence_length = 18)
  words |> adapt(np_array(train_data[[1]])) # the same vocabulary on every worker
  keras_model_sequential(1, input_dtype = "string") |>
    words() |>
    layer_embedding(words$vocabulary_size(), 8) |>
    layer_global_average_pooling_1d() |>
    layer_dense(16, activation = "relu", kernel_regularizer = regularizer_l2(0.001)) |>
    layer_dense(1) |>
    compile(
      optimizer_adam(0.01), loss_binary_crossentropy(from_logits = TRUE),
      metrics = metric_binary_accuracy(name = "accuracy", threshold = 0)
    )
}

callbacks <- function() {
  list(
    callback_early_stopping("val_loss", min_delta = 0.002, patience = 1),
    callback_model_checkpoint(file.path(log_dir, "best.keras"), "val_loss", save_best_only = TRUE),
    callback_tensorboard(log_dir)
  )
}

# --- By distributed_fit() -------------------------------------------------------------------------

by_fit <- function() {
  fit <- distributed_fit(
    network, train_data[[1]], train_data[[2]],
    validation_data = test_data, batch_size = batch, epochs = epochs, callbacks = callbacks, seed = 1,
    shuffle = FALSE, strategy = do.call(strategy_name, as.list(strategy_options))
  )
  if (fit$workers$index[[1]] == 0) as.data.frame(fit)
}

# --- In a custom training loop --------------------------------------------------------------------

by_loop <- function() {
  # Before anything else uses TensorFlow.
  strategy <- do.call(make_strategy, c(list(strategy_name), strategy_options))
  set_random_seed(1) # the same initial weights on every worker
  with(strategy$scope(), {
    chief <- is_chief()
    model <- network()
    optimizer <- model$optimizer
    optimizer$build(model$trainable_variables)
    metrics <- list(
      accuracy = metric_binary_accuracy(threshold = 0), loss = metric_mean(),
      val_accuracy = metric_binary_accuracy(threshold = 0), val_loss = metric_mean()
    )
  })
  per_example <- loss_binary_crossentropy(from_logits = TRUE, reduction = "none")
  batches <- function(data) {
    arrays <- tuple(np_array(data[[1]]), np_array(data[[2]], "float32"))
    distribute(tf$data$Dataset$from_tensor_slices(arrays)$batch(batch), strategy)
  }
  train <- batches(train_data)
  test <- batches(test_data)

  train_step <- function(texts, labels) {
    with(tf$GradientTape() %as% tape, {
      logits <- model(texts, training = TRUE)
      losses <- per_example(labels, logits)
      penalties <- model$losses
      loss <- average_loss(losses) + regularization_loss(penalties)
    })
    optimizer$apply(tape$gradient(loss, model$trainable_variables), model$trainable_variables)
    metrics$loss$update_state(losses + Reduce(`+`, penalties))
    metrics$accuracy$update_state(labels, logits)
    NULL
  }

  test_step <- function(texts, labels) {
    logits <- model(texts, training = FALSE)
    metrics$val_loss$update_state(per_example(labels, logits) + Reduce(`+`, model$losses))
    metrics$val_accuracy$update_state(labels, logits)
    NULL
  }

  # A step, compiled: the strategy runs it on the replica of this worker.
  runner <- function(step) {
    tf_function(function(texts, labels) strategy$run(step, args = tuple(texts, labels)))
  }
  train_batch <- runner(train_step)
  test_batch <- runner(test_step)

  # Every worker decides to stop, the chief alone writes.
  mine <- callbacks()
  called <- import("keras")$callbacks$CallbackList(if (chief) mine else mine[1], model = model)
  model$stop_training <- FALSE
  called$on_train_begin()
  history <- NULL
  for (epoch in seq_len(epochs)) {
    called$on_epoch_begin(epoch - 1L)
    iterate(train, function(pair) train_batch(pair[[1]], pair[[2]]))
    iterate(test, function(pair) test_batch(pair[[1]], pair[[2]]))
    logs <- lapply(metrics, function(metric) as.numeric(metric$result()$numpy()))
    for (metric in metrics) metric$reset_state()
    history <- rbind(history, data.frame(
      epoch = epoch, metric = sub("val_", "", names(logs)), value = unlist(logs),
      data = ifelse(startsWith(names(logs), "val_"), "validation", "training")
    ))
    called$on_epoch_end(epoch - 1L, logs)
    if (model$stop_training) break
  }
  called$on_train_end()
  if (chief) history
}

history <- if (way == "fit") by_fit() else by_loop()
if (!is.null(history)) {
  history <- transform(history, measure = paste(data, metric))
  print(round(xtabs(value ~ epoch + measure, history), 4))
}
