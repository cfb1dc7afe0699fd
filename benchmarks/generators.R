# What a generator costs: the same training from arrays, from a generator in Python and from one in R.
# Rscript benchmarks/generators.R
library(tfdistr)

set.seed(1)
x <- array(stats::runif(6400 * 64), c(6400, 8, 8, 1))
y <- rep(0:9, 640)
steps <- 100L
size <- 64L

model <- function() {
  keras <- reticulate::import("keras")
  layers <- keras$layers
  model <- keras$Sequential(list(
    layers$Conv2D(32L, 3L, activation = "relu"), layers$Flatten(), layers$Dense(10L, "softmax")
  ))
  model$compile("adam", "sparse_categorical_crossentropy")
  model
}

in_r <- local({
  step <- 0L
  function() {
    rows <- (step %% steps) * size + seq_len(size)
    step <<- step + 1L # nolint
    list(x[rows, , , , drop = FALSE], y[rows])
  }
})
in_python <- reticulate::py_run_string("
def make(x, y, steps, size):
    def batches():
        while True:
            for first in range(0, steps * size, size):
                yield x[first:first + size], y[first:first + size]
    return batches
")$make(reticulate::np_array(x, "float32"), reticulate::np_array(y, "int64"), steps, size)

# The median of the seconds of an epoch, but for the first one.
seconds <- function(...) {
  clock <- new.env()
  callbacks <- function() {
    callback <- reticulate::import("keras")$callbacks$LambdaCallback(
      on_epoch_begin = function(epoch, logs) clock$begun <- Sys.time(),
      on_epoch_end = function(epoch, logs) {
        clock$seconds <- c(clock$seconds, as.numeric(Sys.time() - clock$begun, units = "secs"))
      }
    )
    list(callback)
  }
  distributed_fit(model, ..., steps_per_epoch = steps, epochs = 6, seed = 1, callbacks = callbacks)
  stats::median(clock$seconds[-1L])
}

for (round in 1:2) {
  taken <- c(
    arrays = seconds(x, y, batch_size = size),
    "Python generator" = seconds(reticulate::r_to_py(in_python)),
    "R generator" = seconds(in_r)
  )
  cat(sprintf("%-18s %.3f s an epoch of %d steps\n", names(taken), taken, steps), sep = "")
}
