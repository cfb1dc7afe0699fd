"""A lesson: a custom training loop under MirroredStrategy, with a checkpoint."""

import os

import keras
import numpy as np
import tensorflow as tf
from images import load_data

strategy = tf.distribute.MirroredStrategy()
keras.utils.set_random_seed(1)

BATCH_SIZE_PER_REPLICA = 64
GLOBAL_BATCH_SIZE = BATCH_SIZE_PER_REPLICA * strategy.num_replicas_in_sync
EPOCHS = 3

(train_images, train_labels), (test_images, test_labels) = load_data()
train_images = train_images[..., None] / np.float32(255)
test_images = test_images[..., None] / np.float32(255)

train_dataset = tf.data.Dataset.from_tensor_slices((train_images, train_labels))
train_dataset = train_dataset.shuffle(len(train_images), seed=1).batch(GLOBAL_BATCH_SIZE)
test_dataset = tf.data.Dataset.from_tensor_slices((test_images, test_labels)).batch(GLOBAL_BATCH_SIZE)
train_dist_dataset = strategy.experimental_distribute_dataset(train_dataset)
test_dist_dataset = strategy.experimental_distribute_dataset(test_dataset)


def create_model():
    regularizer = keras.regularizers.L2(1e-5)
    return keras.Sequential([
        keras.Input((8, 8, 1)),
        keras.layers.Conv2D(32, 3, activation="relu", kernel_regularizer=regularizer),
        keras.layers.MaxPooling2D(),
        keras.layers.Flatten(),
        keras.layers.Dense(64, activation="relu", kernel_regularizer=regularizer),
        keras.layers.Dense(10, kernel_regularizer=regularizer),
    ])  # fmt: skip


with strategy.scope():
    loss_object = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    def compute_loss(labels, predictions, model_losses):
        per_example_loss = loss_object(labels, predictions)
        loss = tf.nn.compute_average_loss(per_example_loss, global_batch_size=GLOBAL_BATCH_SIZE)
        if model_losses:
            loss += tf.nn.scale_regularization_loss(tf.add_n(model_losses))
        return loss

    test_loss = keras.metrics.Mean(name="test_loss")
    train_accuracy = keras.metrics.SparseCategoricalAccuracy(name="train_accuracy")
    test_accuracy = keras.metrics.SparseCategoricalAccuracy(name="test_accuracy")
    model = create_model()
    optimizer = keras.optimizers.Adam(learning_rate=0.001)
    optimizer.build(model.trainable_variables)
    checkpoint = tf.train.Checkpoint(optimizer=optimizer, model=model)


def train_step(inputs):
    images, labels = inputs
    with tf.GradientTape() as tape:
        predictions = model(images, training=True)
        loss = compute_loss(labels, predictions, model.losses)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    train_accuracy.update_state(labels, predictions)
    return loss


def test_step(inputs):
    images, labels = inputs
    predictions = model(images, training=False)
    t_loss = loss_object(labels, predictions)
    test_loss.update_state(t_loss)
    test_accuracy.update_state(labels, predictions)


@tf.function
def distributed_train_step(dataset_inputs):
    per_replica_losses = strategy.run(train_step, args=(dataset_inputs,))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica_losses, axis=None)


@tf.function
def distributed_test_step(dataset_inputs):
    return strategy.run(test_step, args=(dataset_inputs,))


log = {"loss": [], "accuracy": [], "test loss": [], "test accuracy": []}
checkpoint_prefix = os.path.join("./training_checkpoints", "ckpt")
for epoch in range(EPOCHS):
    total_loss = 0.0
    num_batches = 0
    for x in train_dist_dataset:
        total_loss += distributed_train_step(x)
        num_batches += 1
    train_loss = total_loss / num_batches
    for x in test_dist_dataset:
        distributed_test_step(x)
    if epoch % 2 == 0:
        checkpoint.save(checkpoint_prefix)
    values = (train_loss, train_accuracy.result(), test_loss.result(), test_accuracy.result())
    for name, value in zip(log, values, strict=True):
        log[name].append(float(value))
    print(f"Epoch {epoch + 1}, Loss: {log['loss'][-1]}, Accuracy: {100 * log['accuracy'][-1]}")
    test_loss.reset_state()
    train_accuracy.reset_state()
    test_accuracy.reset_state()

# Several steps in one tf.function, over an iterator.
iterator = iter(train_dist_dataset)


@tf.function
def train_steps(iterator, steps):
    for _ in tf.range(steps):
        strategy.run(train_step, args=(next(iterator),))


train_steps(iterator, tf.constant(2))
log["accuracy"].append(float(train_accuracy.result()))

# The checkpoint, in a new model that no strategy distributes.
new_model = create_model()
tf.train.Checkpoint(model=new_model).restore(tf.train.latest_checkpoint("./training_checkpoints")).expect_partial()
eval_accuracy = keras.metrics.SparseCategoricalAccuracy(name="eval_accuracy")
for images, labels in test_dataset:
    eval_accuracy.update_state(labels, new_model(images, training=False))
evaluated = {"accuracy": float(eval_accuracy.result())}
print(f"Accuracy after restoring the saved model without strategy: {evaluated['accuracy'] * 100}")
