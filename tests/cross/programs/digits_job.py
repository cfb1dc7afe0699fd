"""A job, from Python and from R. Workers import this module, so that it must not start R."""

import tfdistr

IMAGES, LABELS = tfdistr.load_dataset("digits").arrays()
TRAIN, TEST = (IMAGES[:300], LABELS[:300]), (IMAGES[300:400], LABELS[300:400])


def model():
    import keras

    model = keras.Sequential([
        keras.layers.Rescaling(1 / 16),
        keras.layers.Flatten(),
        keras.layers.Dense(10),
    ])  # fmt: skip
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss, metrics=["accuracy"])
    return model


R_MODEL = """
model <- function() {
  keras <- import("keras")
  model <- keras$Sequential(list(
    keras$layers$Rescaling(1 / 16),
    keras$layers$Flatten(),
    keras$layers$Dense(10L)
  ))
  loss <- keras$losses$SparseCategoricalCrossentropy(from_logits = TRUE)
  model$compile(keras$optimizers$SGD(0.1), loss, metrics = list("accuracy"))
  model
}
"""

R_FIT = """
fit <- distributed_fit(
  model, py_to_r(x), py_to_r(y), validation_data = list(py_to_r(x_test), py_to_r(y_test)),
  cluster = local_cluster(py_to_r(workers)), epochs = 2, seed = 5
)"""


def train(workers: int):
    return tfdistr.distributed_fit(
        model, *TRAIN, validation_data=TEST, cluster=tfdistr.local_cluster(workers), epochs=2, seed=5
    )


def train_in_r(workers: int):
    """The weights and the history."""
    import bridge

    data = {"x": TRAIN[0], "y": TRAIN[1], "x_test": TEST[0], "y_test": TEST[1]}
    bridge.r(R_MODEL + R_FIT, **data, workers=workers)
    return bridge.from_r("fit$model").get_weights(), bridge.from_r("fit$history")
