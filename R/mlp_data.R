# The data of tfdistr_mlp(): what it refuses, its targets, and predictions of outputs.

# A matrix as a data frame, whose columns have names in any case.
as_columns <- function(x) {
  if (is.null(colnames(x))) colnames(x) <- sprintf("x%d", seq_len(ncol(x)))
  as.data.frame(x)
}

# Text as factors: a blueprint keeps the levels of factors only.
factors_of <- function(data) {
  text <- vapply(data, is.character, NA)
  data[text] <- lapply(data[text], factor)
  data
}

# Outcomes as a data frame. hardhat names a vector in the same way, but refuses some types without a fix.
as_outcomes <- function(y, call = rlang::caller_env()) {
  y <- if (is.matrix(y)) as_columns(y) else if (is.data.frame(y)) y else data.frame(.outcome = y)
  y <- factors_of(y)
  check_outcomes(y, call)
  y
}

check_rows <- function(data, call) {
  if (is.data.frame(data) && !nrow(data)) {
    abort(
      "argument", "The data must have rows to train on.",
      received = "0 rows", call = call,
      fix = "Pass more data. If a recipe made it, correct the step that drops rows, such as step_naomit()."
    )
  }
}

check_numbers <- function(columns, name, call = rlang::caller_env()) {
  check_lists(columns, name, call)
  for (column in names(columns)) {
    values <- columns[[column]]
    if (is.object(values) || !(is.numeric(values) || is.logical(values))) {
      categories <- is.factor(values) || is.character(values)
      abort(
        "argument", "Predictors must be columns of numbers.",
        received = sprintf("`%s$%s`, of class %s", name, column, class(values)[[1L]]),
        fix = if (categories) {
          "Use a formula, tfdistr_mlp(y ~ ., data), or step_dummy() of a recipe, which make indicators."
        } else {
          "Convert it, for example by as.numeric(), or leave it out."
        },
        call = call
      )
    }
  }
}

check_lists <- function(columns, name, call = rlang::caller_env()) {
  lists <- names(columns)[vapply(columns, is.list, NA)]
  if (length(lists)) {
    abort(
      "argument", "Predictors and outcomes must be columns of numbers, text or factors.",
      received = sprintf("`%s$%s`, a list column", name, lists[[1L]]),
      fix = "Make columns of its values, for example by tidyr::unnest_wider(), or leave it out.",
      call = call
    )
  }
}

# A column of new data as a factor like that of the training.
with_levels <- function(values, known, name, call) {
  levels <- levels(known)
  new <- setdiff(unique(as.character(values)), c(levels, NA))
  if (length(new)) {
    abort(
      "argument", sprintf("`%s` must have the levels of the training: %s.", name, toString(levels)),
      received = toString(dQuote(new, FALSE)),
      fix = "Replace them by NA or a known level, leave out these rows, or train with all levels.",
      call = call
    )
  }
  factor(as.character(values), levels, ordered = is.ordered(known))
}

check_outcomes <- function(outcomes, call) {
  kinds <- vapply(outcomes, function(y) is.factor(y) || is.numeric(y) && !is.object(y), NA)
  classified <- vapply(outcomes, is.factor, NA)
  missing <- sum(is.na(outcomes))
  refuse <- function(rule, received, fix) abort("argument", rule, received = received, fix = fix, call = call)
  if (!length(outcomes) || !all(kinds) || any(classified) && length(outcomes) > 1L) {
    classes <- vapply(outcomes, function(y) class(y)[[1L]], "")
    refuse(
      "The outcomes must be one factor, or columns of numbers.",
      if (length(outcomes)) paste(names(outcomes), classes, collapse = ", ") else "no outcome",
      "Convert them by factor() or as.numeric(), for example, or fit a model for each."
    )
  } else if (missing) {
    refuse(
      "The outcomes must not have missing values.", sprintf("%d missing of %d", missing, nrow(outcomes)),
      "Leave out these rows."
    )
  } else if (any(classified) && nlevels(outcomes[[1L]]) < 2L) {
    refuse(
      "The outcome must have two levels or more.", toString(levels(outcomes[[1L]])),
      "Pass data of all classes."
    )
  }
}

# The levels of the outcome of a classification.
levels_of <- function(outcomes) levels(outcomes[[1L]])

# The targets of the model: a column of 0 and 1 for two levels, an indicator of each of more levels, numbers.
mlp_targets <- function(outcomes) {
  levels <- levels_of(outcomes)
  if (is.null(levels)) {
    return(unname(as.matrix(outcomes)))
  }
  numbers <- as.integer(outcomes[[1L]])
  if (length(levels) == 2L) matrix(numbers - 1) else diag(length(levels))[numbers, , drop = FALSE]
}

# `class_weight` by the numbers of classes, as Keras has it.
weights_by_number <- function(weights, levels, call) {
  unknown <- setdiff(names(weights), levels)
  if (length(unknown) || length(weights) != length(names(weights))) {
    abort(
      "argument", "`class_weight` must have the levels of the outcome as names.",
      received = if (length(unknown)) toString(unknown) else "weights without names",
      fix = if (length(levels)) {
        sprintf("Use these names: %s.", toString(levels))
      } else {
        "Leave it out: the outcomes are numbers."
      },
      call = call
    )
  }
  if (length(weights)) rlang::set_names(as.list(weights), match(names(weights), levels) - 1L)
}

# Outputs of the model as a tibble of predictions.
predictions <- function(outputs, outcomes, type) {
  levels <- levels_of(outcomes)
  if (type == "numeric") {
    names <- if (length(outcomes) > 1L) paste0(".pred_", names(outcomes)) else ".pred"
    return(tibble::as_tibble(rlang::set_names(as.data.frame(outputs), names)))
  }
  if (ncol(outputs) == 1L) outputs <- cbind(1 - outputs, outputs)
  if (type == "prob") {
    return(hardhat::spruce_prob(levels, outputs))
  }
  hardhat::spruce_class(factor(levels[max.col(outputs, "first")], levels))
}
