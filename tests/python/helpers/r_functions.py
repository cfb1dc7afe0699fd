"""R in tests of Python: whether it is here, and R files with functions."""

import functools
import subprocess
import tempfile
from pathlib import Path

import pytest

import tfdistr
from tfdistr.errors import ArgumentError

# The same model in both languages: all of its weights and the history have the same bits.
R_MODEL = """
library(reticulate)
build <- function() {
  keras <- import("keras")
  model <- keras$Sequential(list(
    keras$layers$Rescaling(1 / 16), keras$layers$Conv2D(4L, 3L, activation = "relu"),
    keras$layers$Flatten(), keras$layers$Dropout(0.2), keras$layers$Dense(10L)
  ))
  loss <- keras$losses$SparseCategoricalCrossentropy(from_logits = TRUE)
  model$compile(keras$optimizers$Adam(0.01), loss, metrics = list("accuracy"))
  model
}
data <- function(ctx) tfdistr::load_dataset("digits")$dataset()$take(400L)
callbacks <- function() {
  list(import("keras")$callbacks$LambdaCallback(on_epoch_end = function(epoch, logs) {
    cat("R saw epoch", epoch, "draw", runif(1), "\\n")
  }))
}
fails <- function() stop("no units {x} of 50%")
needs <- function(units, ..., rate = 1) build()
"""

PYTHON_MODEL = """
import keras

def build():
    model = keras.Sequential([
        keras.layers.Rescaling(1 / 16), keras.layers.Conv2D(4, 3, activation="relu"),
        keras.layers.Flatten(), keras.layers.Dropout(0.2), keras.layers.Dense(10),
    ])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    return model
"""


@functools.cache
def why_no_r() -> str:
    """Why there is no R with the R package tfdistr; empty if there is one."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "none.R")
        file.write_text("f <- function() 1")
        try:
            tfdistr.r_function(file, "f")
        except (ArgumentError, subprocess.SubprocessError) as error:
            return str(error).splitlines()[0]
    return ""


needs_r = pytest.mark.skipif(bool(why_no_r()), reason=f"no R here: {why_no_r()}")
