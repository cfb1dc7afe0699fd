"""A lesson: a model that is trained under MirroredStrategy, saved, and loaded with and without a strategy."""

import keras
import tensorflow as tf
from images import load_data

strategy = tf.distribute.MirroredStrategy()
keras.utils.set_random_seed(1)

BATCH_SIZE_PER_REPLICA = 64
BATCH_SIZE = BATCH_SIZE_PER_REPLICA * strategy.num_replicas_in_sync

(train_images, train_labels), test_data = load_data()
train_dataset = tf.data.Dataset.from_tensor_slices((train_images / 255.0, train_labels)).batch(BATCH_SIZE)
eval_dataset = tf.data.Dataset.from_tensor_slices((test_data[0] / 255.0, test_data[1])).batch(BATCH_SIZE)


def get_model():
    with strategy.scope():
        model = keras.Sequential([keras.Input((8, 8)), keras.layers.Flatten(), keras.layers.Dense(10)])
        model.compile(
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            optimizer=keras.optimizers.SGD(0.1, momentum=0.9),
            metrics=[keras.metrics.SparseCategoricalAccuracy()],
        )
        return model


model = get_model()
model.fit(train_dataset, epochs=1, verbose=0)
keras_model_path = "my_model.keras"
model.save(keras_model_path)

restored_keras_model = keras.models.load_model(keras_model_path)
evaluated = restored_keras_model.evaluate(eval_dataset, return_dict=True, verbose=0)

another_strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
with another_strategy.scope():
    on_one_device = keras.models.load_model(keras_model_path)
    loss, _ = on_one_device.evaluate(eval_dataset, verbose=0)
evaluated["loss on one device"] = loss

with strategy.scope():
    model = keras.models.load_model(keras_model_path)
history = model.fit(train_dataset, epochs=2, verbose=0)
