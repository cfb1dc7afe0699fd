"""A lesson: Keras's fit under MirroredStrategy, with callbacks."""

import os

import keras
import tensorflow as tf
from images import load_data

strategy = tf.distribute.MirroredStrategy()
print(f"Number of devices: {strategy.num_replicas_in_sync}")
keras.utils.set_random_seed(1)

BUFFER_SIZE = 10000
BATCH_SIZE_PER_REPLICA = 64
BATCH_SIZE = BATCH_SIZE_PER_REPLICA * strategy.num_replicas_in_sync


def scale(image, label):
    image = tf.cast(image, tf.float32)
    image /= 255
    return image, label


train, test = (tf.data.Dataset.from_tensor_slices(part) for part in load_data())
train_dataset = train.map(scale).cache().shuffle(BUFFER_SIZE, seed=1).batch(BATCH_SIZE)
eval_dataset = test.map(scale).batch(BATCH_SIZE)

with strategy.scope():
    model = keras.Sequential([
        keras.Input((8, 8)),
        keras.layers.Reshape((8, 8, 1)),
        keras.layers.Conv2D(32, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Flatten(),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(10),
    ])  # fmt: skip
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=keras.optimizers.Adam(),
        metrics=["accuracy"],
    )

checkpoint_dir = "./training_checkpoints"
checkpoint_prefix = os.path.join(checkpoint_dir, "ckpt_{epoch}.weights.h5")


def decay(epoch):
    if epoch < 1:
        return 1e-3
    if epoch < 2:
        return 1e-4
    return 1e-5


class PrintLR(keras.callbacks.Callback):
    """Prints the learning rate after each epoch."""

    def on_epoch_end(self, epoch, logs=None):
        print(f"\nLearning rate for epoch {epoch + 1} is {model.optimizer.learning_rate.numpy()}")


callbacks = [
    keras.callbacks.TensorBoard(log_dir="./logs"),
    keras.callbacks.ModelCheckpoint(filepath=checkpoint_prefix, save_weights_only=True),
    keras.callbacks.LearningRateScheduler(decay),
    PrintLR(),
]
history = model.fit(train_dataset, epochs=3, callbacks=callbacks, verbose=2)

model.load_weights(checkpoint_prefix.format(epoch=3))
eval_loss, eval_acc = model.evaluate(eval_dataset, verbose=0)
print(f"Eval loss: {eval_loss}, Eval accuracy: {eval_acc}")
evaluated = {"loss": eval_loss, "accuracy": eval_acc}
