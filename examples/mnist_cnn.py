"""The original job: a convolutional network on MNIST, 64 images a worker, 3 epochs.

    .venv/bin/python examples/mnist_cnn.py DATA_DIR [WORKERS [LEARNING_RATE]]

DATA_DIR holds MNIST as TensorFlow Datasets prepares it; "digits" in its place trains on the small images
that are part of tfdistr, in a few seconds.
"""

import sys

import tfdistr


def network(learning_rate: float, white: int):
    """What makes the model; `white` is the value of a white pixel."""

    def model():
        import keras
        from keras import layers

        model = keras.Sequential([
            layers.Rescaling(1 / white),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ])  # fmt: skip
        model.compile(
            keras.optimizers.SGD(learning_rate), "sparse_categorical_crossentropy", metrics=["accuracy"]
        )
        return model

    return model


if __name__ == "__main__":
    data_dir = sys.argv[1]
    workers, learning_rate = [*sys.argv[2:], *("4", "0.001")[len(sys.argv) - 2 :]]
    small = data_dir == "digits"
    data = {"name": "digits"} if small else {"name": "mnist", "data_dir": data_dir}
    fit = tfdistr.distributed_fit(
        network(float(learning_rate), white=16 if small else 255),
        tfdistr.load_dataset(**data, split="train"),
        validation_data=tfdistr.load_dataset(**data, split="test"),
        cluster=tfdistr.local_cluster(int(workers)),
        batch_size=tfdistr.per_worker(64),
        epochs=3,
        seed=1,
        verbose=2,
    )
    print(fit)
