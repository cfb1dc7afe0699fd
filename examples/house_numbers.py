"""Train a network on images of house numbers in a custom training loop, on one worker or on several.

    .venv/bin/python examples/house_numbers.py WEIGHTS_FILE
    .venv/bin/tfdistr run -n 2 examples/house_numbers.py WEIGHTS_FILE

The script draws the images: 32x32 pixels in color, a digit on a wall. WEIGHTS_FILE, such as
house.weights.h5, gets the weights of the best epoch, from the chief alone. Both ways, the chief prints these
lines. `tfdistr run` puts "[worker 0]" before each:

    epoch 1: loss 2.2065, accuracy 0.2170, test loss 1.8716, test accuracy 0.5533
    epoch 2: loss 1.1547, accuracy 0.6970, test loss 0.5719, test accuracy 0.8133
    epoch 3: loss 0.3666, accuracy 0.8870, test loss 0.2164, test accuracy 0.9433
    epoch 4: loss 0.1412, accuracy 0.9710, test loss 0.1460, test accuracy 0.9633
    epoch 5: loss 0.0798, accuracy 0.9830, test loss 0.0672, test accuracy 0.9833
"""

import sys

import tfdistr

import keras
import numpy as np
import tensorflow as tf

strategy = tfdistr.make_strategy()  # before anything else uses TensorFlow
keras.utils.set_random_seed(1)  # the same initial weights on every worker

BATCH = 64  # the global batch
EPOCHS = 5
DIGITS = """
    ### .#. ### ### #.# ### ### ### ### ###
    #.# ##. ..# ..# #.# #.. #.. ..# #.# #.#
    #.# .#. ### ### ### ### ### ..# ### ###
    #.# .#. #.. ..# ..# ..# #.# ..# #.# ..#
    ### ### ### ### ..# ### ### ..# ### ###
"""


def house_numbers(count: int, seed: int) -> tf.data.Dataset:
    """Batches of images, and the digit in each. Colors, places and noise differ."""
    shapes = (np.array([[*line] for line in DIGITS.split()]) == "#").reshape(5, 10, 3).swapaxes(0, 1)
    shapes = shapes.repeat(4, axis=1).repeat(4, axis=2)  # ten digits of 20x12 pixels
    draw = np.random.default_rng(seed)
    labels = draw.integers(10, size=count)
    images = draw.uniform(0, 0.5, (count, 1, 1, 3)) + draw.normal(0, 0.1, (count, 32, 32, 3))
    for image, label in zip(images, labels, strict=True):
        top, left, color = draw.integers(4, 9), draw.integers(8, 13), draw.uniform(0.2, 0.5, 3)
        image[top : top + 20, left : left + 12] += shapes[label, :, :, np.newaxis] * color
    return tf.data.Dataset.from_tensor_slices((images.astype("float32"), labels)).batch(BATCH)


train, test = (
    tfdistr.distribute(house_numbers(count, seed), strategy) for count, seed in ((1000, 1), (300, 2))
)

with strategy.scope():
    # With relu or max pooling, numbers rounded differently may take the other branch, and the lines differ.
    model = keras.Sequential([
        keras.Input((32, 32, 3)),
        keras.layers.Conv2D(16, 3, strides=2, activation="silu"), keras.layers.AveragePooling2D(2),
        keras.layers.Conv2D(32, 3, activation="silu"), keras.layers.Flatten(),
        keras.layers.Dense(10),
    ])  # fmt: skip
    optimizer = keras.optimizers.Adam(0.005)
    optimizer.build(model.trainable_variables)
    mean, accuracy = keras.metrics.Mean, keras.metrics.SparseCategoricalAccuracy
    metrics = {"loss": mean(), "accuracy": accuracy(), "test loss": mean(), "test accuracy": accuracy()}
per_example = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")


def train_step(batch):
    images, labels = batch
    with tf.GradientTape() as tape:
        logits = model(images, training=True)
        losses = per_example(labels, logits)
        loss = tfdistr.average_loss(losses)  # over the global batch
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    metrics["loss"].update_state(losses)
    metrics["accuracy"].update_state(labels, logits)


def test_step(batch):
    images, labels = batch
    logits = model(images, training=False)
    metrics["test loss"].update_state(per_example(labels, logits))
    metrics["test accuracy"].update_state(labels, logits)


@tf.function
def run_epoch():
    for batch in train:
        strategy.run(train_step, args=(batch,))
    for batch in test:
        strategy.run(test_step, args=(batch,))


best = 0.0
for epoch in range(EPOCHS):
    run_epoch()
    results = {name: float(metric.result()) for name, metric in metrics.items()}  # of all workers
    for metric in metrics.values():
        metric.reset_state()
    if tfdistr.is_chief():
        print(f"epoch {epoch + 1}:", ", ".join(f"{name} {value:.4f}" for name, value in results.items()))
        if results["test accuracy"] > best:
            best = results["test accuracy"]
            model.save_weights(sys.argv[1])
