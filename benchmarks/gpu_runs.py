"""One measurement of gpu.py, in a process of its own: ``gpu_runs.py CALL``, a JSON object.

Its members are "task" (a function of this module), "file" (for the result, as JSON), "tiny", and the other
arguments of the task.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measure
import numpy as np
from gpu_networks import data, model

import tfdistr

EPOCHS = 4  # the first one is not measured


def beside_keras(network: str, dtype: str, xla: bool, tiny: bool) -> dict[str, Any]:
    """Measure Keras's fit() and distributed_fit() with one worker, in turn."""
    x, y, batch = data(network, 1, tiny=tiny)
    make = functools.partial(model, network, dtype=dtype, xla=xla, tiny=tiny)
    common = {"batch_size": batch, "epochs": 2 if tiny else EPOCHS, "verbose": 0}

    def keras_fit(callbacks: list[Any]) -> None:
        make().fit(x, y, callbacks=callbacks, **common)

    def ours(callbacks: list[Any]) -> None:
        tfdistr.distributed_fit(make, x, y, callbacks=callbacks, seed=1, **common)

    return {"keras": _speed(keras_fit, len(x)), "tfdistr": _speed(ours, len(x))}


def _speed(fit: Callable[[list[Any]], None], examples: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        fit([measure.callback(folder)])
        return measure.examples_per_second(folder, examples)


def speed(network: str, workers: int, backend: str, each: int | None, tiny: bool) -> dict[str, Any]:
    """Measure the examples per second of workers with a GPU each; the batch grows with them."""
    x, y, batch = data(network, workers, tiny=tiny)
    with tempfile.TemporaryDirectory() as folder:
        made = tfdistr.distributed_fit(
            functools.partial(model, network, tiny=tiny), x, y, batch_size=batch,
            epochs=2 if tiny else EPOCHS, verbose=0, seed=1, callbacks=functools.partial(_timer, folder),
            cluster=tfdistr.local_cluster(workers, gpus_per_worker=each),
            strategy=_strategy(backend if workers > 1 else "auto"),
        )  # fmt: skip
        return {"tfdistr": measure.examples_per_second(folder, len(x)), "says": _ran(made)}


def _timer(folder: str) -> list[Any]:
    return [measure.callback(folder)]


def equality(
    workers: int, xla: bool, tiny: bool, backend: str = "auto", each: int | None = None
) -> dict[str, Any]:
    """Compare the weights after a short training on several workers with those after one on one."""
    cluster = tfdistr.local_cluster(workers, gpus_per_worker=each)
    several = _short(cluster, tiny, xla=xla, strategy=_strategy(backend))
    one = _short(tfdistr.local_cluster(1, gpus_per_worker=each), tiny, xla=xla)
    return {"difference": _difference(one, several), "says": _ran(several)}


def twice(tiny: bool) -> dict[str, Any]:
    """Compare two runs with virtual workers on two workers, and one on one worker, bit by bit."""
    runs = [_short(tfdistr.local_cluster(workers), tiny, virtual_workers=4) for workers in (2, 2, 1)]
    alike = "equal" if _difference(runs[0], runs[2]) == 0 else "not equal"
    return {
        "difference": _difference(runs[0], runs[1]), "bound": 0.0, "says": f"on one worker: {alike}",
    }  # fmt: skip


def killed(tiny: bool) -> dict[str, Any]:
    """Kill the second worker in its second epoch, and see how long the error takes and whom it names."""
    with tempfile.TemporaryDirectory() as folder:
        when = Path(folder, "killed")
        try:
            _short(tfdistr.local_cluster(2), tiny, callbacks=functools.partial(_killer, str(when)))
        except tfdistr.WorkerFailedError as error:
            seconds = time.time() - float(when.read_text())
            well = error.worker == 1 and seconds < 30
            return {"well": well, "says": f"{error.message.splitlines()[0]} After {seconds:.1f} s"}
    return {"well": False, "says": "no error"}


def _killer(file: str) -> list[Any]:
    import keras

    class Killer(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if epoch == 1 and self.model.distribute_strategy.extended.worker_index == 1:
                Path(file).write_text(str(time.time()))
                os.kill(os.getpid(), signal.SIGKILL)

    return [Killer()]


def _short(cluster: Any, tiny: bool, *, xla: bool = False, **arguments: Any) -> Any:
    x, y, batch = data("seed", 1, tiny=tiny)
    rows = min(len(x), 5 * batch)
    return tfdistr.distributed_fit(
        functools.partial(model, "seed", xla=xla, tiny=tiny), x[: rows - 1], y[: rows - 1], batch_size=batch,
        epochs=2, seed=1, verbose=0, cluster=cluster, **arguments,
    )  # fmt: skip


def _strategy(backend: str) -> Any:
    return tfdistr.multi_worker_mirrored(communication=backend)


def _ran(fit: Any) -> str:
    return f"{fit.params['communication']}, XLA compiled {fit.params['xla']}"


def _difference(one: Any, other: Any) -> float:
    pairs = zip(one.model.get_weights(), other.model.get_weights(), strict=True)
    return max(float(np.abs(a - b).max()) for a, b in pairs)


TASKS = {task.__name__: task for task in (beside_keras, speed, equality, twice, killed)}


def main() -> None:
    call = json.loads(sys.argv[1])
    file, task = Path(call.pop("file")), TASKS[call.pop("task")]
    file.write_text(json.dumps(task(**call)))


if __name__ == "__main__":
    main()
