# The engine "tfdistr" of parsnip. Its models are those of R/mlp.R.

# Offers the engine as soon as parsnip is loaded.
register_engine <- function() {
  setHook(packageEvent("parsnip", "onLoad"), function(...) add_engine())
  if (isNamespaceLoaded("parsnip")) add_engine()
}

# The arguments that parsnip can tune, for each of its models. Those without hidden layers are regressions.
engine_models <- list(
  mlp = c("hidden_units", "penalty", "dropout", "epochs", "activation"),
  linear_reg = "penalty", logistic_reg = "penalty", multinom_reg = "penalty"
)

engine_modes <- list(
  mlp = c("classification", "regression"),
  linear_reg = "regression", logistic_reg = "classification", multinom_reg = "classification"
)

add_engine <- function() {
  for (model in names(engine_models)) {
    for (mode in engine_modes[[model]]) add_mode(model, mode)
    for (argument in engine_models[[model]]) {
      parsnip::set_model_arg(
        model, "tfdistr", argument, argument,
        func = list(pkg = "dials", fun = argument), has_submodel = FALSE
      )
    }
  }
}

add_mode <- function(model, mode) {
  parsnip::set_model_engine(model, mode, "tfdistr")
  parsnip::set_dependency(model, "tfdistr", "tfdistr", mode = mode)
  parsnip::set_fit(model, mode, "tfdistr", list(
    interface = "matrix", protect = c("x", "y", "weights"),
    data = c(x = "x", y = "y", weights = "sample_weight"),
    func = c(pkg = "tfdistr", fun = "tfdistr_mlp"),
    defaults = if (model != "mlp") list(hidden_units = 0) else list()
  ))
  parsnip::set_encoding(model, "tfdistr", mode = mode, options = list(
    predictor_indicators = "traditional", compute_intercept = TRUE, remove_intercept = TRUE,
    allow_sparse_x = FALSE
  ))
  types <- if (mode == "regression") c("numeric", "raw") else c("class", "prob", "raw")
  for (type in types) {
    parsnip::set_pred(model, mode, "tfdistr", type, list(
      pre = NULL, post = after_prediction[[type]], func = c(fun = "predict"),
      args = list(object = quote(object$fit), new_data = quote(as.matrix(new_data)), type = type)
    ))
  }
}

# What parsnip makes its columns of.
after_prediction <- list(
  class = function(predicted, object) predicted[[1L]],
  prob = function(predicted, object) rlang::set_names(predicted, object$lvl),
  numeric = function(predicted, object) {
    names(predicted) <- sub("^[.]pred_", "", names(predicted))
    if (length(predicted) == 1L) predicted[[1L]] else predicted
  },
  raw = NULL
)
