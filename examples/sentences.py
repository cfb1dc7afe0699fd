"""Train a model that takes text, good or bad sentences, by distributed_fit() or in a custom training loop.

    .venv/bin/python examples/sentences.py WAY LOG_DIR [STRATEGY [DEVICE ...]]

WAY is "fit" or "loop". LOG_DIR gets the best model and the events for TensorBoard, from the chief alone.
Start the script once, or once for each worker: with a TF_CONFIG for each, or all of them by
`mpiexec -n 2 .venv/bin/python examples/sentences.py loop logs`. STRATEGY is "multi_worker_mirrored" by
default; "one_device" and "mirrored" train in one process, on DEVICEs such as gpu:0 gpu:1 (or cpu:0 cpu:1, to
try it).

Both ways, with one worker and with two, print the same history:

    data   training         validation
    metric accuracy    loss   accuracy    loss
    epoch
    1        0.5577  0.6973     0.6033  0.6873
    2        0.6169  0.6686     0.7733  0.6154
    3        0.8205  0.5386     0.8867  0.4671
    4        0.9007  0.4360     0.7800  0.5006
"""

import random
import sys

import tfdistr

import keras
import numpy as np
import pandas as pd
import tensorflow as tf

BATCH = 32  # the global batch
EPOCHS = 20  # at most
COLUMNS = ["epoch", "metric", "value", "data"]


def sentences(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Texts of shape (count, 1), and what they say: 1 for good, 0 for bad. One in ten is not meant so."""
    draw = random.Random(seed)
    texts, labels = [], []
    for _ in range(count):
        good, negated = draw.random() < 0.5, draw.random() < 0.5
        thing = draw.choice(["film", "book", "meal", "hotel", "game", "song"])
        how = ("not " if negated else "") + draw.choice(["", "so ", "very "])
        what = draw.choice(["wonderful", "lovely", "great"] if good else ["awful", "boring", "poor"])
        texts.append([f"The {thing} was {how}{what}!"])
        labels.append(good != negated if draw.random() < 0.9 else good == negated)
    return np.array(texts), np.array(labels, "float32")[:, np.newaxis]


TRAIN, TEST = sentences(997, seed=1), sentences(300, seed=2)


def network() -> keras.Model:
    words = keras.layers.TextVectorization(ngrams=3, output_mode="int", output_sequence_length=18)
    words.adapt(TRAIN[0])  # the same vocabulary on every worker
    model = keras.Sequential([
        keras.Input((1,), dtype="string"), words,
        keras.layers.Embedding(words.vocabulary_size(), 8),
        keras.layers.GlobalAveragePooling1D(),
        keras.layers.Dense(16, activation="relu", kernel_regularizer=keras.regularizers.L2(0.001)),
        keras.layers.Dense(1),
    ])  # fmt: skip
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    accuracy = keras.metrics.BinaryAccuracy("accuracy", threshold=0)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=[accuracy])
    return model


def callbacks(log_dir: str) -> list[keras.callbacks.Callback]:
    return [
        keras.callbacks.EarlyStopping("val_loss", min_delta=0.002, patience=1),
        keras.callbacks.ModelCheckpoint(f"{log_dir}/best.keras", "val_loss", save_best_only=True),
        keras.callbacks.TensorBoard(log_dir),
    ]


# --- By distributed_fit() -------------------------------------------------------------------------


def by_fit(log_dir: str, strategy: str, options: dict) -> None:
    fit = tfdistr.distributed_fit(
        network, *TRAIN, validation_data=TEST, batch_size=BATCH, epochs=EPOCHS,
        callbacks=lambda: callbacks(log_dir), seed=1, shuffle=False,
        strategy=getattr(tfdistr, strategy)(**options),  # such as tfdistr.mirrored(devices=...)
    )  # fmt: skip
    if fit.workers[0]["index"] == 0:
        show(fit.to_frame())


# --- In a custom training loop --------------------------------------------------------------------


def by_loop(log_dir: str, name: str, options: dict) -> None:
    strategy = tfdistr.make_strategy(name, **options)  # before anything else uses TensorFlow
    keras.utils.set_random_seed(1)  # the same initial weights on every worker
    with strategy.scope():
        chief = tfdistr.is_chief()
        model = network()
        optimizer = model.optimizer
        optimizer.build(model.trainable_variables)
        accuracy, mean = keras.metrics.BinaryAccuracy, keras.metrics.Mean
        metrics = {"accuracy": accuracy(threshold=0), "loss": mean(),
                   "val_accuracy": accuracy(threshold=0), "val_loss": mean()}  # fmt: skip
    per_example = keras.losses.BinaryCrossentropy(from_logits=True, reduction="none")
    train, test = (
        tfdistr.distribute(tf.data.Dataset.from_tensor_slices(data).batch(BATCH), strategy)
        for data in (TRAIN, TEST)
    )

    def train_step(batch):
        texts, labels = batch
        with tf.GradientTape() as tape:
            logits = model(texts, training=True)
            losses, penalties = per_example(labels, logits), model.losses
            loss = tfdistr.average_loss(losses) + tfdistr.regularization_loss(penalties)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        metrics["loss"].update_state(losses + sum(penalties))
        metrics["accuracy"].update_state(labels, logits)

    def test_step(batch):
        texts, labels = batch
        logits = model(texts, training=False)
        metrics["val_loss"].update_state(per_example(labels, logits) + sum(model.losses))
        metrics["val_accuracy"].update_state(labels, logits)

    @tf.function
    def run_epoch():
        for batch in train:
            strategy.run(train_step, args=(batch,))
        for batch in test:
            strategy.run(test_step, args=(batch,))

    stop, *writers = callbacks(log_dir)  # every worker decides to stop, the chief alone writes
    called = keras.callbacks.CallbackList([stop, *writers] if chief else [stop], model=model)
    model.stop_training = False
    called.on_train_begin()
    rows = []
    for epoch in range(EPOCHS):
        called.on_epoch_begin(epoch)
        run_epoch()
        logs = {name: float(metric.result()) for name, metric in metrics.items()}
        for metric in metrics.values():
            metric.reset_state()
        for name, value in logs.items():
            kind = "validation" if name.startswith("val_") else "training"
            rows.append((epoch + 1, name.removeprefix("val_"), value, kind))
        called.on_epoch_end(epoch, logs)
        if model.stop_training:
            break
    called.on_train_end()
    if chief:
        show(pd.DataFrame(rows, columns=COLUMNS))


def show(history: pd.DataFrame) -> None:
    print(history.pivot(index="epoch", columns=["data", "metric"], values="value").round(4).to_string())


def options(strategy: str, devices: list[str]) -> dict:
    """Return the options of a strategy for one process: its devices."""
    if len(devices) > 1 and all(name.startswith("cpu:") for name in devices):
        (cpu,) = tf.config.list_physical_devices("CPU")  # which is one device, unless it is split
        parts = [tf.config.LogicalDeviceConfiguration() for _ in devices]
        tf.config.set_logical_device_configuration(cpu, parts)
    if not devices:
        return {}
    return {"device": devices[0]} if strategy == "one_device" else {"devices": devices}


if __name__ == "__main__":
    way, log_dir, *rest = sys.argv[1:]
    strategy, *devices = rest or ["multi_worker_mirrored"]
    {"fit": by_fit, "loop": by_loop}[way](log_dir, strategy, options(strategy, devices))
