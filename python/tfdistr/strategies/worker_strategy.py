"""What training asks of a strategy, whatever its kind, and what those of one process have in common."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from tfdistr.communication.collectives import Collectives


class Peer(Protocol):
    """A worker among others.

    Attributes:
        worker_index: Its index.
        title: The name of this process in errors, if it is not "worker" and an index.
        collectives: How this worker exchanges values with its peers; None if it has none, or if TensorFlow's
            replica threads exchange them.
    """

    @property
    def worker_index(self) -> int: ...
    @property
    def title(self) -> str | None: ...
    @property
    def collectives(self) -> Collectives | None: ...

    def report_failure(self, message: str) -> None:
        """Tell the peers that this worker failed."""


class WorkerStrategy(Peer, Protocol):
    """The strategy of one worker, as training sees it.

    Attributes:
        gradient_dtype: What gradients are sent as.
        num_workers: Number of workers.
        is_chief: Whether this worker writes checkpoints and logs.
        communication: What carries the gradients between workers; "none" where they exchange none.
        tasks: The addresses of the workers, by names such as "worker 0", in the order of their indices.
        variables_are_remote: Whether the variables of a model are in other processes, which end.
    """

    gradient_dtype: str

    @property
    def num_workers(self) -> int: ...
    @property
    def is_chief(self) -> bool: ...
    @property
    def communication(self) -> str: ...
    @property
    def tasks(self) -> Mapping[str, str]: ...
    @property
    def variables_are_remote(self) -> bool: ...

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        """The context in which a model is made."""

    def prepare(self, model: keras.Model, data: tf.data.Dataset) -> None:
        """Do what the model and its batches need before the first step."""

    def variables_beside(self) -> Sequence[tf.Variable]:
        """Variables beside the model's that a checkpoint must have."""

    def leave(self) -> None:
        """Wait for the peers to be done."""


class OneProcess:
    """What a strategy for this process alone has in common with one for many workers."""

    gradient_dtype = "float32"
    num_workers = 1
    worker_index = 0
    is_chief = True
    communication = "none"
    collectives: Collectives | None = None
    tasks: ClassVar[Mapping[str, str]] = {}
    title: str | None = None
    variables_are_remote = False

    def prepare(self, model: keras.Model, data: tf.data.Dataset) -> None:
        """There is nothing to do."""

    def variables_beside(self) -> Sequence[tf.Variable]:
        """There are none."""
        return ()

    def report_failure(self, message: str) -> None:
        """There are no peers to tell."""

    def leave(self) -> None:
        """There are no peers to wait for."""
