"""What a training job consists of, and how it travels to the workers."""

from __future__ import annotations

import io
import json
import mmap
import os
import pickle
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tfdistr.data.source import Source
from tfdistr.errors import ArgumentError
from tfdistr.ownership import open_own
from tfdistr.recovery.options import Recovery

_NAME = "job"
_STRATEGY = "strategy"
_ALIGNMENT = 64


@dataclass(frozen=True)
class Named:
    """Stands in a job for a function of another language, which a worker of that language puts in by name."""

    name: str


@dataclass(frozen=True)
class Job:
    """Everything that a worker needs to train: the arguments of ``distributed_fit()``, checked.

    Attributes:
        model: Function without arguments that builds and compiles the model.
        data: Training data.
        validation: Validation data, or None.
        callbacks: List of Keras callbacks, or a function that makes one in the worker.
        batch_size: Examples of a global batch; None if the data function makes batches.
        epochs: Number of epochs.
        steps_per_epoch: Steps of an epoch; None for one pass over the data.
        validation_steps: The same for validation.
        class_weight: Weight of each class, or None.
        seed: Seed of weights, order of examples and layers such as Dropout.
        seed_given: Whether the user gave the seed; otherwise it was drawn.
        shuffle: Whether the training data is shuffled.
        drop_remainder: Whether a last training batch that is not full is dropped.
        learning_rate_factor: What the learning rate is multiplied with.
        warmup_epochs: Number of epochs over which the learning rate rises to that.
        strategy: The name of the strategy.
        options: Its options, beside those that have a place of their own here.
        communication: What carries the collectives.
        gradient_dtype: What gradients are sent as.
        start_timeout: Seconds that the workers wait for each other at the start.
        heartbeat_timeout: Seconds without a sign of life after which a worker counts as gone.
        step_timeout: Seconds that a step may take; None for any time.
        recovery: What is done about failures.
    """

    model: Callable[[], Any]
    data: Source | Named
    validation: Source | Named | None = None
    callbacks: Any = None
    batch_size: int | None = 32
    epochs: int = 1
    steps_per_epoch: int | None = None
    validation_steps: int | None = None
    class_weight: Mapping[int, float] | None = None
    seed: int = 0
    seed_given: bool = True
    shuffle: bool = True
    drop_remainder: bool = False
    learning_rate_factor: float = 1.0
    warmup_epochs: int = 0
    strategy: str = "multi_worker_mirrored"
    options: Mapping[str, Any] = field(default_factory=dict)
    communication: str = "auto"
    gradient_dtype: str = "float32"
    start_timeout: float = 300.0
    heartbeat_timeout: float = 30.0
    step_timeout: float | None = None
    recovery: Recovery = field(default_factory=Recovery)

    @property
    def params(self) -> dict[str, Any]:
        """The numbers of the job, as shown in its result."""
        names = ("strategy", "batch_size", "epochs", "steps_per_epoch", "validation_steps", "seed", "shuffle",
                 "drop_remainder", "learning_rate_factor", "warmup_epochs", "communication",
                 "gradient_dtype")  # fmt: skip
        return {name: getattr(self, name) for name in names} | {"checkpoint_every": self.recovery.every}

    def save(self, run_dir: Path) -> None:
        """Write the job into ``run_dir``.

        Raises:
            ArgumentError: Something in the job cannot be sent to another process.
        """
        save_value(self, run_dir, _NAME)
        # Apart from it, as the strategy must be there before what is in the job uses TensorFlow.
        save_value((self.strategy, self.strategy_options), run_dir, _STRATEGY)

    @property
    def strategy_options(self) -> dict[str, Any]:
        """All options with which the strategy is made."""
        if self.strategy == "multi_worker_mirrored":
            names = ("communication", "start_timeout", "heartbeat_timeout")
            return {name: getattr(self, name) for name in names}
        if self.strategy in ("parameter_server", "model_parallel"):
            return {**self.options, "start_timeout": self.start_timeout}
        return dict(self.options)

    @staticmethod
    def load_strategy(
        run_dir: Path, functions: Mapping[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Read from ``run_dir`` the strategy of a worker, its name and its options, and nothing else."""
        name, options = load_value(run_dir, _STRATEGY)
        present = dict(functions or {})
        return name, {k: present[v.name] if isinstance(v, Named) else v for k, v in options.items()}

    @staticmethod
    def load(run_dir: Path, functions: Mapping[str, Any] | None = None) -> Job:
        """Read the job from ``run_dir``.

        Args:
            run_dir: The folder that ``save`` wrote to.
            functions: What stands for each ``Named`` part of the job.
        """
        job = load_value(run_dir, _NAME)
        assert isinstance(job, Job)
        named = {name: getattr(job, name) for name in ("model", "data", "validation", "callbacks")}
        present = dict(functions or {})
        return replace(job, **{k: present[v.name] for k, v in named.items() if isinstance(v, Named)})


def save_value(value: Any, run_dir: str | os.PathLike[str], name: str) -> None:
    """Write any value into ``run_dir``. Arrays, wherever they are in it, go into one file of their own.

    Args:
        value: The value. Functions are written with what they use.
        run_dir: The run directory of the job.
        name: What the files are called, before their endings.

    Raises:
        ArgumentError: Something in the value cannot be sent to another process.
    """
    import cloudpickle

    buffers: list[pickle.PickleBuffer] = []
    content = io.BytesIO()
    try:
        cloudpickle.CloudPickler(content, protocol=5, buffer_callback=buffers.append).dump(value)
    except Exception as error:  # whatever an object's own pickling code raises
        raise ArgumentError(
            "What the workers run must be such that it can be sent to other processes.",
            received=f"{type(error).__name__}: {error}",
            fix="Make models, datasets and callbacks inside the functions, not outside of them; "
            "pass `callbacks` as a function that returns the list.",
        ) from error
    places = []
    with _create(Path(run_dir, f"{name}.buffers")) as file:
        for buffer in buffers:
            raw = buffer.raw()
            file.write(b"\0" * (-file.tell() % _ALIGNMENT))
            places.append((file.tell(), raw.nbytes))
            file.write(raw)
    with _create(Path(run_dir, f"{name}.pkl")) as file:
        header = json.dumps({"path": sys.path, "buffers": places}).encode()
        file.write(header + b"\n")
        file.write(content.getbuffer())


def load_value(run_dir: str | os.PathLike[str], name: str) -> Any:
    """Read what ``save_value`` wrote; its arrays are mapped into memory, not copied.

    Raises:
        TfdistrError: Somebody else could have written it.
    """
    with open_own(Path(run_dir, f"{name}.pkl")) as file:
        header = json.loads(file.readline())
        # Functions from the user's own modules are sent by name.
        sys.path.extend(entry for entry in header["path"] if entry not in sys.path)
        return pickle.load(file, buffers=_mapped(Path(run_dir, f"{name}.buffers"), header["buffers"]))


def _create(path: Path) -> Any:
    """Open a new file that only this user can read: what is unpickled from it is run."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")


def _mapped(path: Path, places: list[list[int]]) -> list[memoryview]:
    if not places or path.stat().st_size == 0:
        return [memoryview(b"") for _ in places]
    with open_own(path) as file:
        whole = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    return [whole[start : start + size] for start, size in places]
