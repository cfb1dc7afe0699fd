"""The interface between training and any strategy, and the strategies of one process."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from tfdistr.strategies.build import has_known_shapes

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from tfdistr.collectives.interface import Collectives
    from tfdistr.data.pipeline.worker_data import WorkerData


class Peer(Protocol):
    """A worker among others.

    Attributes:
        title: The name of this process in errors, if it is not "worker" and an index.
        collectives: Exchanges values with the peers; None if the worker has no peers, or if TensorFlow's
            replica threads exchange the values.
    """

    @property
    def worker_index(self) -> int: ...
    @property
    def title(self) -> str | None: ...
    @property
    def collectives(self) -> Collectives | None: ...

    def report_failure(self, message: str) -> None:
        """Report the failure of this worker to the peers."""


class WorkerStrategy(Peer, Protocol):
    """The strategy of one worker, from the view of training.

    Attributes:
        gradient_dtype: The type in which gradients are sent.
        is_chief: Whether this worker writes checkpoints and logs.
        communication: The backend of the gradients; "none" if the workers exchange none.
        tasks: The addresses of the workers, by names such as "worker 0", in the order of their indices.
        own_virtual_workers: The virtual workers of this worker, and the number of all of them; None without
            them.
        variables_are_remote: Whether the variables of a model are in other processes, which will exit.
        layers_are_apart: Whether the layers of a model are on several devices or in several processes.
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
    def own_virtual_workers(self) -> tuple[range, int] | None: ...
    @property
    def variables_are_remote(self) -> bool: ...
    @property
    def layers_are_apart(self) -> bool: ...

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        """Return the context in which a model is made."""

    def prepare(self, model: keras.Model, data: WorkerData) -> None:
        """Prepare the model and its batches for the first step."""

    def variables_beside(self) -> Sequence[tf.Variable]:
        """Variables outside the model that a checkpoint must have."""

    def leave(self) -> bool:
        """Wait for the peers to be done, and return whether they are."""


class OneProcessStrategy:
    """The common part of strategies for one process, in the form of a strategy for many workers."""

    gradient_dtype = "float32"
    num_workers = 1
    worker_index = 0
    is_chief = True
    communication = "none"
    collectives: Collectives | None = None
    tasks: ClassVar[Mapping[str, str]] = {}
    title: str | None = None
    own_virtual_workers: tuple[range, int] | None = None
    variables_are_remote = False
    layers_are_apart = False

    def prepare(self, model: keras.Model, data: WorkerData) -> None:
        """Do nothing."""

    def variables_beside(self) -> Sequence[tf.Variable]:
        """No variables."""
        return ()

    def report_failure(self, message: str) -> None:
        """Do nothing: there are no peers."""

    def leave(self) -> bool:
        """Do nothing: there are no peers."""
        return True


class SingleWorker(OneProcessStrategy):
    """Takes the place of a strategy in a process that trains alone."""

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        """Return the context in which a model is made: an empty one."""
        return contextlib.nullcontext()

    def prepare(self, model: keras.Model, data: WorkerData) -> None:
        """Read a batch if the shapes are not known.

        A strategy reads a batch to build the model. This advances a shuffle that depends on the iteration.
        The order of the examples must be the same here.
        """
        if not (has_known_shapes(data.element_spec) or data.fed):
            next(iter(data.dataset), None)
