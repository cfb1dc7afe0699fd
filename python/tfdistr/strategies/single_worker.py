"""Training in one process, without a TensorFlow strategy."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from tfdistr.data.pipeline.element_shapes import has_known_shapes
from tfdistr.strategies.worker_strategy import OneProcess

if TYPE_CHECKING:
    import keras

    from tfdistr.data.pipeline.worker_data import WorkerData


class SingleWorker(OneProcess):
    """Takes the place of a strategy in a process that trains alone."""

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        """The context in which a model is made: an empty one."""
        return contextlib.nullcontext()

    def prepare(self, model: keras.Model, data: WorkerData) -> None:
        """Read a batch if the shapes are not known.

        A strategy reads a batch to build the model. This advances a shuffle that depends on the iteration.
        The order of the examples must be the same here.
        """
        if not (has_known_shapes(data.element_spec) or data.fed):
            next(iter(data.dataset), None)
