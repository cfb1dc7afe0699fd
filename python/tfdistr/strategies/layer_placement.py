"""Places of layers: their parsing and checks, before TensorFlow is imported."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfdistr.errors import ArgumentError, ClusterConfigError
from tfdistr.rendezvous.config import ClusterConfig, Task
from tfdistr.utils.describe import number_of
from tfdistr.utils.function_files import FunctionByName

#: The places of layers by name; or a function that returns the place of a layer, or None.
Placement = Mapping[str, str] | Callable[[Any], str | None]

_PLACE = re.compile(r"(?:(worker(?= \d)|chief)(?: (\d+))?)?(?:(?:^| )((?:cpu|gpu):\d+))?", re.IGNORECASE)
_FULL = re.compile(r"/job:(worker|chief)(?:/replica:0)?/task:(\d+)(?:/device:((?:CPU|GPU):\d+))?")
_FORM = (
    'Write it like "worker 0", "worker 1 gpu:0", "chief", or "cpu:0" and "gpu:1" for devices of the process '
    "that calls."
)


@dataclass(frozen=True)
class LayerPlace:
    """A device of a task.

    Attributes:
        task: The task; None for the calling process.
        device: The device, such as "GPU:0"; None for the first GPU, or the CPU if the task has none.
    """

    task: Task | None
    device: str | None

    def find(self, devices: Sequence[str], here: str) -> str:
        """Return the full name of the device among ``devices``; names of this process begin with ``here``."""
        task = f"/job:{self.task.type}/replica:0/task:{self.task.index}" if self.task else here
        own = [name for name in devices if name.startswith(f"{task}/device:")]
        for wanted in [self.device] if self.device else ["GPU:0", "CPU:0"]:
            if f"{task}/device:{wanted}" in own:
                return f"{task}/device:{wanted}"
        raise ArgumentError(
            "`placement` must name existing devices.",
            received=f"{(self.device or 'a CPU').lower()} of {self.task or 'this process'}",
            fix=f"Choose among {', '.join(name.rpartition('device:')[2].lower() for name in own)}.",
        )


def parse_place(name: object) -> LayerPlace:
    """Parse a place."""
    found = None
    if isinstance(name, str) and name:
        found = _FULL.fullmatch(name) or _PLACE.fullmatch(name)
    if found is None:
        raise ArgumentError("`placement` must give devices or tasks.", received=repr(name), fix=_FORM)
    job, index, device = found.groups()
    return LayerPlace(Task(job.lower(), int(index or 0)) if job else None, device.upper() if device else None)


def workers_in(config: ClusterConfig) -> int:
    """Return the number of workers of a cluster with a chief."""
    if set(config.jobs) != {"chief", "worker"} or config.task.type != "chief":
        raise ClusterConfigError(
            'With strategy="model_parallel" only the chief may call distributed_fit(). Its workers run '
            "`tfdistr server`.",
            received=f"the task {config.task} of a cluster of {', '.join(config.jobs)} in TF_CONFIG",
            fix='Set TF_CONFIG, as tf_config(worker=, chief=, type="chief", index=0) gives it.',
        )
    return len(config.jobs["worker"])


def check_form(placement: object) -> object:
    """Check the form of a placement, and return it."""
    if callable(placement) or isinstance(placement, FunctionByName):
        return placement
    if not isinstance(placement, Mapping) or not placement or not all(isinstance(k, str) for k in placement):
        raise ArgumentError(
            'The strategy "model_parallel" needs `placement`: places by the names of layers, or a function.',
            received=repr(placement),
            fix='Pass strategy=model_parallel(placement={"dense_1": "worker 0", "dense_2": "worker 1"}), for '
            "example.",
        )
    for name in placement.values():
        parse_place(name)
    return placement


def check_placement(placement: object, workers: int | None) -> None:
    """Check that the tasks of a placement exist, before anything is started."""
    if isinstance(placement, Mapping):
        for layer, name in placement.items():
            check_task(parse_place(name), workers, layer)


def check_task(place: LayerPlace, workers: int | None, layer: str) -> None:
    """Check that the task of a layer's place exists."""
    if place.task is None or (
        workers is not None and place.task.index < (workers if place.task.type == "worker" else 1)
    ):
        return
    there = "no cluster" if workers is None else f"{number_of(workers, 'worker')} and a chief"
    raise ArgumentError(
        "`placement` must name tasks of the cluster.",
        received=f"{place.task} for the layer {layer}, and {there}",
        fix="Pass cluster=local_cluster(workers=2), for example, or name a device of this process, like "
        '"cpu:0".'
        if workers is None
        else "Name another task, or start more workers.",
    )
