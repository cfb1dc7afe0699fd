"""Keras's fit with callbacks, saving and mistakes, under the strategy, as one worker of two.

Usage: keras_calls.py SHARED OWN   (writes OWN/<index>.json: what each part gave on this worker)
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

import tfdistr

strategy = tfdistr.MultiWorkerMirroredStrategy(start_timeout=60)

import keras  # noqa: E402
import tensorflow as tf  # noqa: E402
from heard import Heard  # noqa: E402

SHARED, OWN, INDEX = Path(sys.argv[1]), Path(sys.argv[2]), strategy.worker_index
rng = np.random.default_rng(0)
X = rng.normal(size=(50, 4)).astype("float32")
Y = X[:, :1] * 2
STEPS = 4  # of 16 examples, the last of 2


messages = Heard()


def make(*layers: keras.layers.Layer, units: int = 3, rate: float = 0.01, **options: Any) -> keras.Model:
    keras.utils.set_random_seed(1)
    with strategy.scope():
        first, last = keras.layers.Dense(units, "tanh"), keras.layers.Dense(1)
        model = keras.Sequential([keras.Input((4,)), first, *layers, last])
        model.compile(keras.optimizers.SGD(rate), "mse", metrics=["mae"], **options)
    return model


def data(x: np.ndarray = X, y: np.ndarray = Y) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(16)


def steps_of(model: keras.Model) -> int:
    return int(model.optimizer.iterations.numpy())


def error_of(call: Any) -> str:
    try:
        call()
    except tfdistr.TfdistrError as error:
        return f"{type(error).__name__}: {error}"
    return "none"


class Reader(keras.callbacks.Callback):
    """Reads the metrics at the end of every epoch, as a callback that writes a report does."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[dict[str, float]] = []
        self.hooks: list[str] = []

    def on_train_begin(self, logs: Any = None) -> None:
        self.hooks.append("on_train_begin")

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.hooks.append("on_train_batch_end")
        self.model.get_metrics_result()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.hooks.append("on_epoch_end")
        # The results are computed from variables that each worker has a part of.
        self.read.append({name: float(value) for name, value in self.model.get_metrics_result().items()})


def writers() -> object:
    reader = tfdistr.chief_only(Reader())
    model = make()
    history = model.fit(
        data(), epochs=2, verbose=0,
        callbacks=[
            reader,
            keras.callbacks.ModelCheckpoint(str(SHARED / "best.keras"), monitor="mae", save_best_only=True),
            keras.callbacks.ModelCheckpoint(str(SHARED / "{epoch}-{batch}.weights.h5"), save_freq=3,
                                            save_weights_only=True),
            keras.callbacks.CSVLogger(str(SHARED / "log.csv")),
            keras.callbacks.TensorBoard(str(SHARED / "board"), histogram_freq=1),
        ],
    ).history  # fmt: skip
    return {"history": history, "read": reader.read, "hooks": reader.hooks}


def saved() -> object:
    model = make()
    model.evaluate(data(), verbose=0)
    returned = [model.save(SHARED / "saved.keras"), model.save_weights(SHARED / "saved.weights.h5")]
    model.export(SHARED / "exported", verbose=False)
    strategy.barrier("saved", 60)
    model.set_weights([weight * 0 for weight in model.get_weights()])
    model.load_weights(SHARED / "saved.weights.h5")
    whole = keras.models.load_model(SHARED / "saved.keras", compile=False)
    same = all(np.array_equal(a, b) for a, b in zip(whole.get_weights(), model.get_weights(), strict=True))
    exported = tf.saved_model.load(SHARED / "exported")  # kept, for it owns what serve() uses
    output = exported.serve(X[:2])
    return {
        "returned": returned,
        "same": same and bool(np.any(model.get_weights()[0])),
        "exported": bool(np.allclose(output, whole(X[:2]), atol=1e-6)),
    }


class StopsAfter(keras.callbacks.Callback):
    """Stops the training on one worker, after a batch or an epoch."""

    def __init__(self, worker: int, batch: int | None = None, epoch: int | None = None) -> None:
        super().__init__()
        if worker == INDEX and batch is not None:
            self.on_train_batch_end = lambda number, logs=None: self._stop(number == batch)
        if worker == INDEX and epoch is not None:
            self.on_epoch_end = lambda number, logs=None: self._stop(number == epoch)

    def _stop(self, now: bool) -> None:
        self.model.stop_training = self.model.stop_training or now


def stopped() -> object:
    """How many steps each worker made, by who stopped when."""
    steps: dict[str, Any] = {}

    def train(name: str, **fit: Any) -> None:
        model = make()
        epochs = len(model.fit(data(), epochs=4, verbose=0, **fit).epoch)
        steps[name] = [epochs, steps_of(model)]

    for worker in range(2):
        train(f"batch {worker}", callbacks=[StopsAfter(worker, batch=1)])
        train(f"epoch {worker}", callbacks=[StopsAfter(worker, epoch=1)])
    train("chief only", callbacks=[tfdistr.chief_only(StopsAfter(0, batch=2))])
    train("only one has it", callbacks=[StopsAfter(1, batch=0)] if INDEX == 1 else None)
    return steps


def logs_of_batches() -> object:
    """What callbacks that may stop after a batch are told, on each worker."""
    told: list[dict[str, float]] = []
    show = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: told.append(dict(logs)))
    make().fit(data(), verbose=0, callbacks=[show])
    return told


def not_a_number() -> object:
    """The 19th example belongs to the second step and the first worker, the 30th to the second worker."""
    found = {}
    for row in (18, 29):
        y = Y.copy()
        y[row] = np.nan
        model = make()
        history = model.fit(
            data(y=y), epochs=2, verbose=0, callbacks=[keras.callbacks.TerminateOnNaN()]
        ).history
        found[str(row)] = [messages.take(), steps_of(model), str(history["loss"])]
    make().fit(data(y=y), epochs=2, verbose=0)
    found["said once"] = messages.take()
    return found


def restored() -> object:
    """Training continues from a backup that only the chief can see."""
    folder = str((SHARED if strategy.is_chief else OWN) / "backup")

    def backup() -> keras.callbacks.Callback:
        return keras.callbacks.BackupAndRestore(folder, delete_checkpoint=False)

    def shuffled() -> tf.data.Dataset:
        """Another order in each epoch."""
        keras.utils.set_random_seed(1)
        return tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(50, seed=5).batch(16)

    make().fit(shuffled(), epochs=2, verbose=0, callbacks=[backup()])
    model, straight = make(rate=0.01), make()
    model.set_weights([weight + INDEX for weight in model.get_weights()])
    epochs = len(model.fit(shuffled(), epochs=3, verbose=0, callbacks=[backup()]).epoch)
    straight.fit(shuffled(), epochs=3, verbose=0)
    pairs = zip(model.get_weights(), straight.get_weights(), strict=True)
    return {"epochs": epochs, "difference": max(float(np.abs(a - b).max()) for a, b in pairs)}


def needs_all() -> object:
    """Calls that a callback of the chief alone cannot make."""
    said = []

    class Evaluates(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            said.append(error_of(lambda: self.model.evaluate(data(), verbose=0)))
            said.append(error_of(lambda: strategy.gather(tf.zeros([1]), axis=0)))

    make().fit(data(), verbose=0, callbacks=[tfdistr.chief_only(Evaluates())])
    return said


def compiled() -> object:
    """What comes of two workers whose steps XLA compiles; its files are in OWN/xla."""
    os.environ["XLA_FLAGS"] = f"--xla_dump_to={OWN / 'xla'}"  # read when XLA first compiles
    usual, model = make(), make(jit_compile=True)
    for each in (usual, model):
        each.fit(data(), verbose=0)
    pairs = zip(usual.get_weights(), model.get_weights(), strict=True)
    apart = max(float(np.abs(a - b).max()) for a, b in pairs)
    make().fit(data(), verbose=0)  # which does not ask for it
    return {"said": messages.take(), "apart": apart}


def ended_early() -> object:
    """Data with fewer batches than were wanted."""
    model = make()
    model.fit(data(), epochs=2, steps_per_epoch=STEPS + 1, verbose=0)
    return [messages.take(), steps_of(model)]


def after_a_failure() -> object:
    """A fit that fails before its first step leaves a model that trains."""
    with strategy.scope():
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    failed = False
    try:
        model.fit(data().map(lambda x, y: ({"not": x, "one": x}, y)), verbose=0)
    except Exception:  # of Keras, which cannot build the model
        failed = True
    left_behind = "make_train_function" in vars(model)
    return [failed, left_behind, bool(np.isfinite(model.train_on_batch(X, Y)))]


def mistakes() -> object:
    """Calls that differ on the second worker."""
    other = INDEX == 1
    # One that is refused before the first step leaves the strategy as it was, so that all go in one process.
    calls = {
        "epochs": lambda: make().fit(data(), epochs=2 + other, verbose=0),
        "steps": lambda: make().fit(data().repeat(), steps_per_epoch=3 - other, verbose=0),
        "data": lambda: make().fit(data(X[: 50 - 20 * other], Y[: 50 - 20 * other]), verbose=0),
        "arrays": lambda: make().fit(X[: 50 - other], Y[: 50 - other], batch_size=16, verbose=0),
        "validation": lambda: make().fit(data(), validation_data=None if other else data(), verbose=0),
        "rate": lambda: make(rate=0.02 if other else 0.01).fit(data(), verbose=0),
        "rate of dropout": lambda: make(keras.layers.Dropout(0.1 + 0.1 * other)).fit(data(), verbose=0),
        "call": lambda: make().evaluate(data(), verbose=0) if other else make().fit(data(), verbose=0),
    }
    return {name: error_of(call) for name, call in calls.items()}


found = {}
for part in (
    writers, saved, stopped, logs_of_batches, restored, needs_all, after_a_failure
):  # fmt: skip
    found[part.__name__] = part()
messages.take()
for part in (not_a_number, compiled, ended_early, mistakes):
    found[part.__name__] = part()
(OWN / f"{INDEX}.json").write_text(json.dumps(found))
