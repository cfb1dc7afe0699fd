"""A chief and a worker. Each saves to a path of its own, and only the chief's file is kept."""

import os

import keras
import tensorflow as tf
from images import load_data

strategy = tf.distribute.MultiWorkerMirroredStrategy()
task_type = strategy.cluster_resolver.task_type
task_id = strategy.cluster_resolver.task_id
keras.utils.set_random_seed(1)

(x_train, y_train), (x_test, y_test) = load_data()
train = tf.data.Dataset.from_tensor_slices((x_train / 255.0, y_train))
train = train.shuffle(2000, seed=1, reshuffle_each_iteration=False).batch(64)
test = tf.data.Dataset.from_tensor_slices((x_test / 255.0, y_test)).batch(64)

with strategy.scope():
    model = keras.Sequential([
        keras.Input((8, 8)), keras.layers.Reshape((8, 8, 1)),
        keras.layers.Conv2D(16, 3, activation="relu"), keras.layers.Flatten(), keras.layers.Dense(10),
    ])  # fmt: skip
    model.compile(
        optimizer=keras.optimizers.SGD(0.05),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )

history = model.fit(train, epochs=2, validation_data=test, verbose=2)


def is_chief():
    return task_type is None or task_type == "chief"


def write_filepath(filepath):
    """The path itself on the chief, and a temporary path elsewhere."""
    if is_chief():
        return filepath
    folder = os.path.join(os.path.dirname(filepath), f"workertemp_{task_id}")
    tf.io.gfile.makedirs(folder)
    return os.path.join(folder, os.path.basename(filepath))


model_path = os.path.join(os.getcwd(), "digits.keras")
write_model_path = write_filepath(model_path)
model.save(write_model_path)
if not is_chief():
    tf.io.gfile.rmtree(os.path.dirname(write_model_path))
strategy.reduce(tf.distribute.ReduceOp.SUM, tf.constant(1), axis=None)  # wait for the chief's file

with strategy.scope():
    loaded_model = keras.models.load_model(model_path)
evaluated = loaded_model.evaluate(test, return_dict=True, verbose=0)
print(f"Restored model, accuracy: {100 * evaluated['accuracy']:5.2f}%")
