"""Objects cross in one process: a dataset, a model and a history are the very same on the other side."""

import bridge
import numpy as np

import tfdistr

if __name__ == "__main__":
    import keras
    import tensorflow as tf

    # Python's dataset and model, trained from R.
    dataset = tf.data.Dataset.from_tensor_slices((np.ones((8, 2), "float32"), np.ones(8, "float32"))).batch(4)
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    bridge.r("history <- model$fit(dataset, epochs = 2L, verbose = 0L)", model=model, dataset=dataset)
    assert bridge.from_r("model") is model
    assert bridge.from_r("dataset") is dataset
    history = bridge.from_r("history")
    assert history is model.history
    assert len(history.history["loss"]) == 2

    # R's data and function, used from Python.
    described = bridge.from_r("load_dataset('digits', 'test')$dataset()")
    assert isinstance(described, tf.data.Dataset)
    images, labels = tfdistr.load_dataset("digits", "test").arrays()
    first = next(iter(described))
    np.testing.assert_array_equal(first[0], images[0])
    assert int(first[1]) == labels[0]
    matrix = bridge.from_r("matrix(1:6, nrow = 2)")
    np.testing.assert_array_equal(matrix, [[1, 3, 5], [2, 4, 6]])
    fit = tfdistr.distributed_fit(
        bridge.from_r("""function() {
          keras <- import("keras")
          model <- keras$Sequential(list(keras$layers$Dense(1L)))
          # An R function as loss, traced on R's thread.
          model$compile("sgd", function(y_true, y_pred) {
            import("tensorflow")$reduce_mean((y_pred - y_true)^2)
          })
          model
        }"""),
        np.arange(8, dtype="float32").reshape(4, 2), np.ones((4, 1), "float32"), seed=1,
    )  # fmt: skip
    assert fit.history["loss"][0] > 0
    print("same objects")
