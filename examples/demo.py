"""Train a small convolutional network on two workers to read handwritten digits."""

import tfdistr


def model():
    import keras
    from keras import layers

    model = keras.Sequential([
        layers.Rescaling(1 / 16), layers.Conv2D(32, 3, activation="relu"), layers.Flatten(),
        layers.Dense(10, activation="softmax"),
    ])  # fmt: skip
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


fit = tfdistr.distributed_fit(
    model, tfdistr.load_dataset("digits"),
    validation_data=tfdistr.load_dataset("digits", "test"),
    cluster=tfdistr.local_cluster(workers=2), epochs=5, seed=1, verbose=2,
)  # fmt: skip
print(fit)
