# nolint start: object_usage_linter, undesirable_operator_linter. Package and state.
# What rows name, in R: models, data, functions, callbacks. In Python: models.py.
digits <- load_dataset("digits")$arrays()
images <- digits[[1L]][1:320, , , , drop = FALSE] / 16
labels <- as.integer(digits[[2L]][1:320])
few_images <- images[1:64, , , , drop = FALSE]
few_labels <- labels[1:64]
weights <- (0:319) %% 5 + 1
columns <- list(left = images[, , 1:4, , drop = FALSE], right = images[, , 5:8, , drop = FALSE])

keras <- reticulate::import("keras", delay_load = TRUE)
tf <- reticulate::import("tensorflow", delay_load = TRUE)

network <- function(...) {
  layers <- list(keras$layers$Flatten(), ..., keras$layers$Dense(10L, "softmax"))
  model <- keras$Sequential(layers)
  model$compile(keras$optimizers$Adam(0.01), "sparse_categorical_crossentropy", metrics = list("accuracy"))
  model
}

dense <- function() network(keras$layers$Dense(16L, "relu", name = "first"))

by_sgd <- function() {
  layers <- keras$layers
  model <- keras$Sequential(list(layers$Flatten(), layers$Dense(16L, "relu"), layers$Dense(10L, "softmax")))
  model$compile("sgd", "sparse_categorical_crossentropy", metrics = list("accuracy"))
  model
}

convolution <- function() {
  model <- keras$Sequential(list(
    keras$layers$Conv2D(4L, 3L, activation = "relu"), keras$layers$Flatten(),
    keras$layers$Dense(10L, "softmax")
  ))
  model$compile(keras$optimizers$SGD(0.1), "sparse_categorical_crossentropy", metrics = list("accuracy"))
  model
}

random <- function() {
  network(keras$layers$Dense(16L, "relu"), keras$layers$BatchNormalization(), keras$layers$Dropout(0.2))
}

own_loss <- function() {
  model <- network(keras$layers$Dense(16L, "relu"))
  model$compile(keras$optimizers$Adam(0.01), function(y_true, y_pred) {
    2 * keras$losses$sparse_categorical_crossentropy(y_true, y_pred)
  })
  model
}

two_inputs <- function() {
  input <- function(name) keras$Input(list(8L, 4L, 1L), name = name)
  left <- input("left")
  right <- input("right")
  flat <- keras$layers$Concatenate()(list(keras$layers$Flatten()(left), keras$layers$Flatten()(right)))
  model <- keras$Model(list(left = left, right = right), keras$layers$Dense(10L, "softmax")(flat))
  model$compile(keras$optimizers$Adam(0.01), "sparse_categorical_crossentropy", metrics = list("accuracy"))
  model
}

linear <- function() {
  model <- keras$Sequential(list(keras$layers$Dense(1L, name = "only")))
  model$compile(keras$optimizers$SGD(0.01), "mse")
  model
}

linear_of_images <- function() network()

stops <- function() stop("there is no model here: 50% {x}")

data_stops <- function() stop("there are no data here: 50% {x}")

callback_stops <- function() {
  index <- worker_index()
  stops <- function(epoch, logs) {
    if (index == 1L) {
      stop("this epoch is bad: 50% {x}")
    }
  }
  list(keras$callbacks$LambdaCallback(on_epoch_end = stops))
}

pipeline <- function() {
  data <- reticulate::tuple(reticulate::np_array(images, "float32"), labels)
  tf$data$Dataset$from_tensor_slices(data)$map(function(x, y) reticulate::tuple(x * 2, y))
}

sharded <- function(ctx) {
  data <- reticulate::tuple(reticulate::np_array(images, "float32"), labels)
  ctx$shard(tf$data$Dataset$from_tensor_slices(data))$map(function(x, y) reticulate::tuple(x * 2, y))
}

generator <- local({
  batch <- 0L
  function() {
    batch <<- if (batch == 10L) 0L else batch + 1L
    rows <- (batch - 1L) * 32L + 1:32
    if (batch) list(images[rows, , , , drop = FALSE], labels[rows])
  }
})

callbacks <- function() {
  list(
    keras$callbacks$LearningRateScheduler(function(epoch, rate) rate / 2),
    keras$callbacks$EarlyStopping(monitor = "loss", min_delta = 100, patience = 1L)
  )
}

kills_itself <- function() {
  list(after_17_steps(function() if (worker_index() == num_workers() - 1L) Sys.getpid()))
}

after_17_steps <- function(whom) {
  steps <- 0L
  keras$callbacks$LambdaCallback(on_train_batch_end = function(batch, logs) {
    steps <<- steps + 1L
    process <- whom()
    if (steps == 17L && length(process)) {
      tools::pskill(process, tools::SIGKILL)
      Sys.sleep(60) # a worker ends with its session, before another step
    }
  })
}

dataset <- function() tf$data$Dataset$from_tensor_slices(reticulate::np_array(0:7, "float32"))

csv_logger <- function() keras$callbacks$CSVLogger("never-written.csv")

ring_options <- function() {
  tf$distribute$experimental$CommunicationOptions(timeout_seconds = 90, implementation = "RING")
}

of_epoch <- function() function(epoch, logs) NULL
# nolint end
