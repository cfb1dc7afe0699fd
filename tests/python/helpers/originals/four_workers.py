"""A convolutional network on four workers; TF_CONFIG of each has the addresses of all."""

import json
import os

import keras
import numpy as np
import tensorflow as tf
from images import load_data

keras.utils.set_random_seed(1)

per_worker_batch_size = 64
tf_config = json.loads(os.environ["TF_CONFIG"])
num_workers = len(tf_config["cluster"]["worker"])

strategy = tf.distribute.MultiWorkerMirroredStrategy()


def mnist_dataset(batch_size):
    (x_train, y_train), _ = load_data()
    x_train = x_train / np.float32(255)
    y_train = y_train.astype(np.int64)
    return tf.data.Dataset.from_tensor_slices((x_train, y_train)).shuffle(60000).repeat().batch(batch_size)


def build_and_compile_cnn_model():
    model = keras.Sequential([
        keras.Input(shape=(8, 8)),
        keras.layers.Reshape(target_shape=(8, 8, 1)),
        keras.layers.Conv2D(32, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Flatten(),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(10),
    ])  # fmt: skip
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=keras.optimizers.SGD(learning_rate=0.05),
        metrics=["accuracy"],
    )
    return model


global_batch_size = per_worker_batch_size * num_workers
multi_worker_dataset = mnist_dataset(global_batch_size)

with strategy.scope():
    model = build_and_compile_cnn_model()

history = model.fit(multi_worker_dataset, epochs=3, steps_per_epoch=10)
