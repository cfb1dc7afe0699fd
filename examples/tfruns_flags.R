# A script whose numbers are flags of tfruns; it trains on two workers.
#
#     Rscript examples/tfruns_flags.R --epochs 3
# or, from R, with the flags epochs and rate, by tfruns::training_run() and tfruns::tuning_run().
#
# Without tfruns, the flags of the command line ("--name value") replace the defaults.
library(tfdistr)

defaults <- list(rate = 0.01, epochs = 2)
flags <- if (requireNamespace("tfruns", quietly = TRUE)) {
  tfruns::flags(
    tfruns::flag_numeric("rate", defaults$rate),
    tfruns::flag_integer("epochs", defaults$epochs)
  )
} else {
  words <- commandArgs(TRUE)
  names <- sub("^--", "", words[c(TRUE, FALSE)])
  utils::modifyList(defaults, stats::setNames(lapply(words[c(FALSE, TRUE)], as.numeric), names))
}

model <- function() {
  keras <- reticulate::import("keras")
  layers <- keras$layers
  model <- keras$Sequential(list(
    layers$Rescaling(1 / 16), layers$Flatten(), layers$Dense(10L, "softmax")
  ))
  model$compile(
    keras$optimizers$Adam(flags$rate), "sparse_categorical_crossentropy",
    metrics = list("accuracy")
  )
  model
}

fit <- distributed_fit(
  model, load_dataset("digits"),
  cluster = local_cluster(2), batch_size = 64, epochs = flags$epochs, seed = 1, verbose = 0
)
# In a run of tfruns, tfruns::ls_runs() then has these numbers.
if (requireNamespace("tfruns", quietly = TRUE)) {
  tfruns::write_run_metadata("evaluation", list(loss = utils::tail(fit$history$loss, 1)))
}
losses <- fit$history$loss
cat(sprintf("rate %g, %d epochs: loss %.3f\n", flags$rate, length(losses), utils::tail(losses, 1)))
