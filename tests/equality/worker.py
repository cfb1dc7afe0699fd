"""Trains cases, one after the other, as one worker of the cluster in TF_CONFIG, or alone without it.

Usage: worker.py FOLDER COMMUNICATION|mirrored:DEVICES LIMIT VIRTUAL MODULE WAY:CASE...

VIRTUAL is the number of virtual workers, or 0 for none. MODULE has the cases.

For each case it leaves FOLDER/WAY:CASE.npz (weights, history, evaluate, predict) and what tfdistr has said
in FOLDER/WAY:CASE.said, or what went wrong in FOLDER/WAY:CASE.error and ends: workers that one of them has
left cannot continue together.
In a cluster all cases go one way, for TensorFlow makes one strategy per process.
"""

import faulthandler
import importlib
import json
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
from case import CASES, WAYS, Case, Data
from said import listening

import tfdistr

SEED = 7

Results = dict[str, np.ndarray]


def pipeline(data: Data, batch: int, *, shuffle: bool = False) -> tf.data.Dataset:
    """An ordinary pipeline of global batches. It shuffles without a seed: the strategy gives all one."""
    if callable(data):
        return data()
    dataset = tf.data.Dataset.from_tensor_slices(data if len(data) > 1 else data[0])
    return (dataset.shuffle(1000) if shuffle else dataset).batch(batch)


def drop_in(case: Case, strategy: tf.distribute.Strategy) -> Results:
    """Keras's own methods under the strategy."""
    keras.utils.set_random_seed(SEED)  # as distributed_fit() does by itself
    with strategy.scope():
        model = case.model()
    data = {"x": pipeline(case.data, case.batch, shuffle=True)}
    data = arguments(case.data, case.batch) if case.arrays else data
    if case.validation is not None:
        data["validation_data"] = pipeline(case.validation, case.batch)
    callbacks = case.callbacks() if case.callbacks else None
    history = model.fit(**data, **case.fit, callbacks=callbacks, verbose=0)
    held_out = held_out_of(case)
    if not case.predicts:
        predicted = ()
    elif callable(held_out):
        predicted = model.predict(held_out().map(lambda x, *_: x), verbose=0)
    else:
        predicted = model.predict(held_out[0], batch_size=case.batch, verbose=0)
    evaluated = model.evaluate(pipeline(held_out, case.batch), return_dict=True, verbose=0)
    return results(model, history.history, evaluated, predicted)


def distributed_fit(case: Case, how: dict[str, Any]) -> Results:
    """``distributed_fit()``, which joins the cluster by itself, and the methods of what it returns."""
    fit = tfdistr.distributed_fit(
        case.model, **arguments(case.data, case.batch), validation_data=case.validation,
        callbacks=case.callbacks, seed=SEED, verbose=0, **how, **case.fit,
    )  # fmt: skip
    held_out = arguments(held_out_of(case), case.batch)
    evaluated = fit.evaluate(**held_out)
    predicted = fit.predict(held_out["x"], batch_size=held_out["batch_size"]) if case.predicts else ()
    return results(fit.model, fit.history, evaluated, predicted)


def arguments(data: Data, batch: int) -> dict[str, Any]:
    """The data, as ``distributed_fit()`` takes it."""
    x, y, weight = (data, None, None) if callable(data) else (*data, None, None)[:3]
    return {"x": x, "y": y, "sample_weight": weight, "batch_size": None if callable(data) else batch}


def held_out_of(case: Case) -> Data:
    """What is evaluated and predicted."""
    data = case.held_out or case.data
    if callable(data):
        return lambda: data().take(2)
    return tf.nest.map_structure(lambda array: array[:50], data)


def logical_devices(count: int) -> list[str]:
    """So many devices of this process, which share its CPU."""
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
    return [f"cpu:{number}" for number in range(count)]


def results(
    model: keras.Model, history: dict[str, Any], evaluated: dict[str, Any], predicted: Any
) -> Results:
    """All that is compared, by name."""
    values = {f"weights {number}": value for number, value in enumerate(model.get_weights())}
    state = model.optimizer.variables
    values |= {f"weights of the optimizer {number}": v.numpy() for number, v in enumerate(state)}
    values |= {f"history {name}": value for name, value in history.items()}
    values |= {f"evaluate {name}": value for name, value in evaluated.items()}
    values |= {f"predict {number}": value for number, value in enumerate(tf.nest.flatten(predicted))}
    return {name: np.asarray(value, dtype=np.float64) for name, value in values.items()}


def main(folder: Path, communication: str, limit: float, virtual: int, module: str, pairs: list[str]) -> None:
    tempfile.tempdir = str(folder)
    importlib.import_module(module)
    strategy = None
    how: dict[str, Any] = {}
    if communication.startswith("mirrored:"):
        devices = logical_devices(int(communication.partition(":")[2]))
        strategy = tfdistr.MirroredStrategy(devices)
        how["strategy"] = tfdistr.mirrored(devices=devices)
    else:
        how["strategy"] = tfdistr.multi_worker_mirrored(communication=communication)
        if any(pair.startswith(WAYS[0]) for pair in pairs):
            strategy = tfdistr.MultiWorkerMirroredStrategy(
                communication=communication, virtual_workers=virtual or None
            )
    if virtual:
        how["virtual_workers"] = virtual
    for pair in pairs:
        way, _, name = pair.partition(":")
        case = CASES[name]
        keras.backend.clear_session(free_memory=False)  # so that names of metrics start again
        with (folder / f"{pair}.error").open("w") as error:
            # Also where Python itself does not come to its turn any more.
            faulthandler.dump_traceback_later(case.limit or limit, exit=True, file=error)
            try:
                with listening() as said:
                    values = drop_in(case, strategy) if way == WAYS[0] else distributed_fit(case, how)
            except Exception:
                traceback.print_exc(file=error)
                raise
            finally:
                faulthandler.cancel_dump_traceback_later()
        (folder / f"{pair}.said").write_text(json.dumps(said))
        np.savez(folder / "part.npz", **values)
        (folder / "part.npz").rename(folder / f"{pair}.npz")


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[1] / "zoo"))
    main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), int(sys.argv[4]), sys.argv[5], sys.argv[6:])
