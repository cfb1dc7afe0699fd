"""The original job: a convolutional network on MNIST, 64 images a worker, 3 epochs.

    .venv/bin/python examples/mnist_cnn.py DATA_DIR [WORKERS [LEARNING_RATE]]

DATA_DIR holds MNIST as TensorFlow Datasets prepares it.
"""

import sys

import tfdistr


def network(learning_rate: float):
    def model():
        import keras
        from keras import layers

        model = keras.Sequential([
            layers.Rescaling(1 / 255),
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
    fit = tfdistr.distributed_fit(
        network(float(learning_rate)),
        tfdistr.load_dataset("mnist", "train", data_dir=data_dir),
        validation_data=tfdistr.load_dataset("mnist", "test", data_dir=data_dir),
        cluster=tfdistr.local_cluster(int(workers)),
        per_worker_batch_size=64,
        epochs=3,
        seed=1,
        verbose=2,
    )
    print(fit)
