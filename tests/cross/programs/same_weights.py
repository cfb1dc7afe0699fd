"""The same job from Python and from R, each on two workers: the same weights and history."""

import bridge
import numpy as np

import tfdistr


def model():
    import keras

    model = keras.Sequential([
        keras.layers.Rescaling(1 / 16),
        keras.layers.Conv2D(4, 3, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(10),
    ])  # fmt: skip
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    return model


R_MODEL = """
model <- function() {
  keras <- import("keras")
  model <- keras$Sequential(list(
    keras$layers$Rescaling(1 / 16),
    keras$layers$Conv2D(4L, 3L, activation = "relu"),
    keras$layers$Flatten(),
    keras$layers$Dense(10L)
  ))
  loss <- keras$losses$SparseCategoricalCrossentropy(from_logits = TRUE)
  model$compile(keras$optimizers$Adam(0.01), loss, metrics = list("accuracy"))
  model
}
"""

if __name__ == "__main__":
    x, y = tfdistr.load_dataset("digits").arrays()
    python = tfdistr.distributed_fit(
        model, x[:300], y[:300], validation_data=(x[300:400], y[300:400]),
        cluster=tfdistr.local_cluster(2), epochs=2, seed=5,
    )  # fmt: skip
    bridge.r(
        R_MODEL
        + """
fit <- distributed_fit(
  model, py_to_r(x), py_to_r(y), validation_data = list(py_to_r(x_test), py_to_r(y_test)),
  cluster = local_cluster(2), epochs = 2, seed = 5
)""",
        x=x[:300], y=y[:300], x_test=x[300:400], y_test=y[300:400],
    )  # fmt: skip
    trained = bridge.from_r("fit$model")
    history = bridge.from_r("fit$history")
    for mine, theirs in zip(python.model.get_weights(), trained.get_weights(), strict=True):
        np.testing.assert_allclose(theirs, mine, rtol=0, atol=1e-7)
    assert sorted(history) == sorted(python.history)
    for name, values in python.history.items():
        np.testing.assert_allclose(history[name], values, rtol=0, atol=1e-6)
    print("same weights")
    bridge.leave()
