# Outputs of a model as numbers, probabilities or classes. The core knows the names of the classes.

check_type <- function(type, output, call = rlang::caller_env()) {
  types <- c("raw", "numeric", "prob", "class")
  if (!rlang::is_string(type, types)) {
    abort(
      "argument", "`type` must be \"raw\", \"numeric\", \"prob\" or \"class\".",
      received = rlang::expr_deparse(type)[[1L]],
      fix = "Leave it out for the outputs as they are.",
      call = call
    )
  }
  if (type != "raw" && !is.null(output)) {
    abort(
      "argument", "The files in `output` hold the outputs as they are.",
      received = sprintf("type = \"%s\"", type), fix = "Leave `type` or `output` out.", call = call
    )
  }
}

# Outputs of a type. With several outputs, those without classes are numbers.
#
# levels: The names of the classes of each output, in the same structure; NULL if there are none.
outputs_as <- function(type, outputs, levels, call = rlang::caller_env()) {
  if (type != "numeric" && is.null(unlist(levels))) {
    abort(
      "argument", sprintf("type = \"%s\" needs a fit whose `y` had classes.", type),
      received = "a fit with numbers as `y`, or with a dataset",
      fix = "Train with y = factor(y), or leave `type` out.", call = call
    )
  }
  if (is.list(outputs)) {
    made <- lapply(seq_along(outputs), \(place) output_as(type, outputs[[place]], levels[[place]], call))
    rlang::set_names(made, names(outputs))
  } else {
    output_as(type, outputs, levels, call)
  }
}

output_as <- function(type, output, levels, call) {
  if (type == "numeric" || is.null(levels)) {
    return(if (length(dim(output)) == 2L && ncol(output) == 1L) as.vector(output) else output)
  }
  of_one <- ncol(output) == 1L && length(levels) == 2L # the probability of the second class
  values <- if (of_one) cbind(1 - output, output) else output
  if (length(dim(output)) != 2L || ncol(values) != length(levels)) {
    refuse_outputs("a column for each class", paste0("[", toString(dim(output)), "]"), call)
  }
  known <- values[stats::complete.cases(values), , drop = FALSE] # rows with missing inputs are NaN
  are_probabilities <- all(known >= 0 & known <= 1) && all(abs(rowSums(known) - 1) < 1e-3)
  if ((type == "prob" || of_one) && !are_probabilities) {
    shown <- range(output, na.rm = TRUE)
    refuse_outputs("probabilities", sprintf("values from %.3g to %.3g", shown[[1L]], shown[[2L]]), call)
  }
  if (type == "class") {
    return(factor(levels[max.col(values, "first")], levels))
  }
  colnames(values) <- levels
  values
}

refuse_outputs <- function(rule, received, call) {
  abort(
    "argument", sprintf("The outputs of the model must be %s.", rule), received = received,
    fix = "End the model by a softmax layer with a unit for each class, or leave `type` out.", call = call
  )
}
