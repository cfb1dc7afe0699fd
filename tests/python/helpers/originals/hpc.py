"""A job of a computing centre: NCCL, batch and learning rate grow with the workers, the chief writes."""

import os

import keras
import tensorflow as tf
from images import load_data

cluster_resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
implementation = tf.distribute.experimental.CommunicationImplementation.NCCL
communication_options = tf.distribute.experimental.CommunicationOptions(implementation=implementation)
strategy = tf.distribute.MultiWorkerMirroredStrategy(
    cluster_resolver=cluster_resolver, communication_options=communication_options
)
keras.utils.set_random_seed(1)

batch_size_per_worker = 32
batch_size = batch_size_per_worker * strategy.num_replicas_in_sync
learning_rate_per_worker = 0.02
learning_rate = learning_rate_per_worker * strategy.num_replicas_in_sync

(x_train, y_train), (x_test, y_test) = load_data()
dataset = tf.data.Dataset.from_tensor_slices((x_train[..., None], y_train))
dataset = dataset.map(lambda image, label: (tf.cast(image, tf.float32) / 255, label), tf.data.AUTOTUNE)
dataset = dataset.shuffle(len(x_train), seed=1).repeat().batch(batch_size).prefetch(tf.data.AUTOTUNE)
test = tf.data.Dataset.from_tensor_slices((x_test[..., None] / 255.0, y_test)).batch(batch_size)

with strategy.scope():
    model = keras.Sequential([
        keras.Input((8, 8, 1)),
        keras.layers.Conv2D(16, 3, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(10),
    ])  # fmt: skip
    model.compile(
        optimizer=keras.optimizers.SGD(learning_rate),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )

is_chief = cluster_resolver.task_id in (None, 0)
callbacks = []
if is_chief:
    os.makedirs("out", exist_ok=True)
    callbacks.append(keras.callbacks.ModelCheckpoint("out/{epoch}.keras"))
    callbacks.append(keras.callbacks.CSVLogger("out/log.csv"))

history = model.fit(
    dataset, epochs=3, steps_per_epoch=len(x_train) // batch_size, validation_data=test, callbacks=callbacks,
    verbose=2 if is_chief else 0,
)  # fmt: skip
evaluated = model.evaluate(test, return_dict=True, verbose=0)
