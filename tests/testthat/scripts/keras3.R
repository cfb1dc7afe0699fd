# nolint start: object_usage_linter. Packages are attached by variables.
# Trains models that are written with keras3 on one worker and on two, and saves how far the results are
# apart. Arguments: the file for the result, the package to attach first, and the names of the cases.
arguments <- commandArgs(TRUE)
packages <- if (arguments[[2L]] == "keras3") c("keras3", "tfdistr") else c("tfdistr", "keras3")
for (package in c(packages, "tfdatasets")) {
  suppressPackageStartupMessages(library(package, character.only = TRUE))
}

digits <- load_dataset("digits", "test")$arrays()
x <- digits[[1L]][1:120, , , , drop = FALSE] / 16
y <- as.integer(digits[[2L]][1:120])

compiled <- function(model, optimizer = "adam", loss = "sparse_categorical_crossentropy",
                     metrics = "accuracy") {
  model |> compile(optimizer = optimizer, loss = loss, metrics = metrics)
  model
}

sequential <- function(...) {
  keras_model_sequential() |>
    layer_conv_2d(4, 3, activation = "relu") |>
    layer_flatten() |>
    layer_dense(10, activation = "softmax") |>
    compiled(...)
}

layer_scaled <- Layer(
  "Scaled",
  initialize = function(factor = 2, ...) {
    super$initialize(...)
    self$factor <- factor
  },
  build = function(shape) {
    self$shift <- self$add_weight(shape = list(shape[[length(shape)]]), initializer = "zeros")
  },
  call = function(x) x * self$factor + self$shift
)

TwoDense <- Model( # nolint: a class
  "TwoDense",
  initialize = function(units = 8, ...) {
    super$initialize(...)
    self$flat <- layer_flatten()
    self$hidden <- layer_dense(units = units, activation = "relu")
    self$out <- layer_dense(units = 10, activation = "softmax")
  },
  call = function(inputs) inputs |> self$flat() |> self$hidden() |> self$out()
)

# A model without call(), whose steps take x alone. With metrics of compile(), its logs are nested.
OwnSteps <- Model( # nolint: a class
  "OwnSteps",
  initialize = function(...) {
    super$initialize(...)
    self$network <- keras_model_sequential(c(8, 8, 1)) |>
      layer_flatten() |>
      layer_dense(8, activation = "tanh") |>
      layer_dense(64) |>
      layer_reshape(c(8, 8, 1))
  },
  log = function(data, made, loss) {
    logs <- list()
    for (metric in self$metrics) {
      if (metric$name == "loss") {
        metric$update_state(loss, sample_weight = op_shape(data)[[1L]])
      } else {
        metric$update_state(data, made)
      }
      logs[[metric$name]] <- metric$result()
    }
    logs
  },
  train_step = function(data) {
    tape <- tensorflow::tf$GradientTape()
    with(tape, {
      made <- self$network(data, training = TRUE)
      loss <- self$compute_loss(y = data, y_pred = made)
    })
    weights <- self$network$trainable_weights
    gradients <- tape$gradient(loss, weights)
    self$optimizer$apply_gradients(Map(list, gradients, weights))
    self$log(data, made, loss)
  },
  test_step = function(data) {
    made <- self$network(data, training = FALSE)
    self$log(data, made, self$compute_loss(y = data, y_pred = made))
  }
)

StopAfterFirst <- Callback( # nolint: a class
  "StopAfterFirst",
  on_epoch_end = function(epoch, logs = NULL) if (epoch == 1) self$model$stop_training <- TRUE
)

models <- list(
  functional = function() {
    input <- keras_input(c(8, 8, 1))
    left <- input |> layer_flatten() |> layer_dense(8, activation = "relu")
    right <- input |> layer_conv_2d(2, 3) |> layer_flatten()
    output <- layer_concatenate(left, right) |> layer_dense(10, activation = "softmax")
    compiled(keras_model(input, output))
  },
  layer_class = function() {
    keras_model_sequential(c(8, 8, 1)) |>
      layer_flatten() |>
      layer_scaled(factor = 3) |>
      layer_dense(10, activation = "softmax") |>
      compiled()
  },
  model_class = function() compiled(TwoDense(units = 6)),
  r_loss_and_metric = function() {
    error <- custom_metric("error", function(y_true, y_pred) {
      op_mean(loss_sparse_categorical_crossentropy(y_true, y_pred), axis = -1, keepdims = TRUE)
    })
    loss <- function(y_true, y_pred) 2 * loss_sparse_categorical_crossentropy(y_true, y_pred)
    sequential(loss = loss, metrics = list("accuracy", error))
  },
  schedule = function() {
    rate <- learning_rate_schedule_exponential_decay(0.05, decay_steps = 2, decay_rate = 0.5)
    sequential(optimizer = optimizer_sgd(rate, momentum = 0.9))
  }
)

pipeline <- function() {
  tensor_slices_dataset(list(x, y)) |>
    dataset_map(function(image, label) list(image * 2, label)) |>
    dataset_shuffle(50, seed = 1L)
}

images <- function() {
  image_dataset_from_directory(
    Sys.getenv("IMAGES"),
    image_size = c(8, 8), color_mode = "grayscale", batch_size = NULL, shuffle = FALSE
  )
}

# The arguments of distributed_fit() for each case.
on_arrays <- function(model, ...) {
  list(model = model, x, y, validation_data = list(x[1:40, , , , drop = FALSE], y[1:40]), ...)
}
cases <- list(
  sequential = on_arrays(sequential),
  functional_with_callbacks = on_arrays(models$functional, callbacks = function() {
    list(callback_reduce_lr_on_plateau(patience = 0), callback_early_stopping(patience = 1))
  }),
  layer_class_of_pipeline = list(model = models$layer_class, pipeline),
  model_and_callback_classes = on_arrays(models$model_class, callbacks = function() list(StopAfterFirst())),
  r_loss_and_metric = on_arrays(models$r_loss_and_metric),
  schedule_of_dataset = list(model = models$schedule, pipeline()),
  images = list(model = sequential, images),
  own_steps = list(
    model = function() compiled(OwnSteps(), loss = "mse", metrics = "mae"), x,
    validation_data = x[1:40, , , , drop = FALSE]
  ),
  given = on_arrays("given")
)

trained <- function(case, workers) {
  is_given <- identical(case$model, "given")
  if (is_given) {
    set_random_seed(3L)
    case$model <- sequential()
  }
  cluster <- local_cluster(workers, env = c(CUDA_VISIBLE_DEVICES = ""))
  fit <- do.call(distributed_fit, c(case, list(cluster = cluster, batch_size = 50, epochs = 3, seed = 1)))
  if (is_given) stopifnot(identical(reticulate::py_id(fit$model), reticulate::py_id(case$model)))
  if (is.array(case$validation_data)) { # without call(), so that it cannot predict
    evaluated <- evaluate(fit, x)
    of_keras <- evaluate(fit$model, x, verbose = 0)
    stopifnot(all.equal(evaluated[names(of_keras)], of_keras, tolerance = 1e-6))
    return(list(weights = fit$model$get_weights(), history = fit$history, evaluated = evaluated))
  }
  predicted <- predict(fit, x)
  stopifnot(all.equal(predicted, predict(fit$model, x, verbose = 0), tolerance = 1e-6))
  # evaluate() is for both, whichever package was attached last.
  evaluated <- evaluate(fit, x, y)
  of_keras <- evaluate(fit$model, x, y, verbose = 0)
  stopifnot(all.equal(evaluated[names(of_keras)], of_keras, tolerance = 1e-6))
  list(
    weights = fit$model$get_weights(), history = fit$history, predicted = predicted, evaluated = evaluated
  )
}

apart <- function(one, other) max(abs(unlist(one) - unlist(other)) / pmax(1, abs(unlist(one))))

result <- lapply(cases[arguments[-(1:2)]], function(case) {
  one <- trained(case, 1)
  two <- trained(case, 2)
  losses <- one$history$loss
  list(
    apart = mapply(apart, one, two), epochs = length(losses), metrics = names(one$history),
    learns = losses[[1L]] > losses[[length(losses)]]
  )
})
saveRDS(result, arguments[[1L]])
# nolint end
