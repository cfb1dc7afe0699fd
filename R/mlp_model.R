# The Keras model of tfdistr_mlp(), made in each worker.

# Keras's activations, in all versions that tfdistr works with.
activations <- c(
  "celu", "elu", "exponential", "gelu", "glu", "hard_shrink", "hard_sigmoid", "hard_silu", "hard_tanh",
  "leaky_relu", "linear", "log_sigmoid", "log_softmax", "mish", "relu", "relu6", "selu", "sigmoid", "silu",
  "soft_shrink", "softmax", "softplus", "softsign", "sparse_plus", "sparse_sigmoid", "sparsemax",
  "squareplus", "swish", "tanh", "tanh_shrink", "threshold"
)

# What the model function gets, checked.
mlp_design <- function(input, outcomes, hidden_units, penalty, dropout, activation, model, call) {
  check <- function(valid, name, rule, value, fix) {
    if (!isTRUE(valid)) {
      abort(
        "argument", sprintf("`%s` must be %s.", name, rule),
        received = deparse1(value), fix = sprintf("Pass %s = %s, for example.", name, fix), call = call
      )
    }
  }
  numbers <- function(value, valid) is.numeric(value) && !anyNA(value) && all(valid(value))
  units <- function(value) value >= 0 & value == round(value)
  check(
    numbers(hidden_units, units) && length(hidden_units), "hidden_units", "whole numbers of at least 0",
    hidden_units, "c(32, 16)"
  )
  check(
    numbers(penalty, function(value) value >= 0) && length(penalty) == 1L,
    "penalty", "a number of at least 0", penalty, "0.01"
  )
  check(
    numbers(dropout, function(value) value >= 0 & value < 1) && length(dropout) == 1L, "dropout",
    "a number from 0, and less than 1", dropout, "0.2"
  )
  hidden <- hidden_units[hidden_units > 0]
  activation <- sub("^hardsigmoid$", "hard_sigmoid", activation) # as parsnip calls it
  check(
    all(activation %in% activations) && length(activation) %in% c(1L, length(hidden_units)), "activation",
    "the name of an activation of Keras, or one for each layer", activation, "\"relu\""
  )
  check(is.null(model) || is_r_function(model), "model", "an R function", class(model)[[1L]], paste(
    "function(input, outputs, units) keras_model_sequential(input_shape = input) |> layer_dense(outputs)"
  ))
  levels <- levels_of(outcomes)
  kind <- if (is.null(levels)) "numbers" else if (length(levels) == 2L) "two" else "several"
  list(
    input = as.integer(input), units = as.integer(hidden), penalty = penalty, dropout = dropout,
    outputs = c(numbers = length(outcomes), two = 1L, several = length(levels))[[kind]],
    activation = activation, kind = kind, model = model %||% mlp_layers(kind)
  )
}

# The function that makes and compiles the model.
mlp_model <- function(design, compile) {
  defaults <- list(
    optimizer = "adam",
    loss = switch(design$kind, numbers = "mse", two = "binary_crossentropy", "categorical_crossentropy")
  )
  compile <- utils::modifyList(defaults, compile)
  for (name in c("metrics", "weighted_metrics")) compile[[name]] <- as_texts(compile[[name]])
  compile$steps_per_execution <- whole_as_integer(compile$steps_per_execution)
  function() {
    parts <- c("input", "outputs", "units", "penalty", "dropout", "activation")
    wanted <- names(formals(design$model))
    made <- do.call(design$model, design[if ("..." %in% wanted) parts else intersect(parts, wanted)])
    check_mlp(made, design$outputs)
    if (!made$compiled) do.call(made$compile, lapply(compile, fresh))
    made
  }
}

# The layers of a multilayer perceptron.
mlp_layers <- function(kind) {
  last <- c(numbers = "linear", two = "sigmoid", several = "softmax")[[kind]]
  function(input, outputs, units, penalty, dropout, activation) {
    keras <- reticulate::import("keras")
    layers <- keras$layers
    dense <- function(...) {
      layers$Dense(..., kernel_regularizer = if (penalty > 0) keras$regularizers$L2(penalty))
    }
    hidden <- Map(function(units, activation) {
      list(dense(units, activation), if (dropout > 0) layers$Dropout(dropout))
    }, units, rep_len(activation, length(units)))
    output <- if (length(units)) layers$Dense(outputs, last) else dense(outputs, last)
    all <- c(keras$Input(list(input)), unlist(hidden, use.names = FALSE), output)
    keras$Sequential(Filter(Negate(is.null), all))
  }
}

check_mlp <- function(made, outputs) {
  is_model <- inherits(made, "keras.src.models.model.Model")
  shape <- if (is_model) made$output_shape
  if (!is_model || !identical(shape[[length(shape)]], outputs)) {
    abort(
      "argument", sprintf("`model` must return a Keras model with %d outputs.", outputs),
      received = if (is_model) sprintf("the output shape (%s)", toString(shape)) else class(made)[[1L]],
      fix = "End it with layer_dense(units = outputs), for example.", call = NULL
    )
  }
}

# The arguments of compile() for one model: optimizers and metrics have variables, so each model has its own.
fresh <- function(part) {
  if (is_python(part) && reticulate::py_has_attr(part, "get_config")) {
    part$`__class__`$from_config(part$get_config())
  } else if (is.list(part)) {
    lapply(part, fresh)
  } else {
    part
  }
}
