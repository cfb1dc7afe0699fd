"""Batches from Python or R code, which the training thread reads one after the other."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.data.form import Form
from tfdistr.data.order.context import WorkerContext, reading_of
from tfdistr.data.order.shard import check_rows, take_rows
from tfdistr.data.order.shuffle_order import Order
from tfdistr.data.pipeline.batch_objects import (
    GivenBatches,
    Pull,
    count_batches,
    is_py_dataset,
    needs_steps,
    pass_of,
)
from tfdistr.data.source import as_arrays
from tfdistr.data.trees import Array, batch_type
from tfdistr.errors import ArgumentError

#: The number of first batches, whose shapes show which dimensions vary.
_LOOKED_AT = 2
#: The number of rows of a batch that are compared.
_COMPARED = 16


class FedBatches:
    """The batches of Python or R code, with the interface of a ``tf.data.Dataset``.

    Each iteration is a pass, whose number ``one_pass`` gets; if ``endless``, another pass follows each.
    Columns and classes of all batches are those of ``form``, as far as it has some, or of the first batch.
    """

    def __init__(
        self, one_pass: Callable[[int], Iterator[object]], context: WorkerContext, *, endless: bool,
        skipped: int = 0, first: int = 0, name: str = "x", form: Form | None = None,
    ) -> None:  # fmt: skip
        self._name, self._given = name, form or Form()
        self.form: Form | None = None
        self._one_pass, self._place, self._endless = one_pass, context.place, endless
        self._next, self._skipped = first, skipped
        unread = self._pass()
        looked_at = list(itertools.islice(unread, _LOOKED_AT))
        if not looked_at:
            raise _no_batch()
        if self._place[0] > 1:
            check_rows(looked_at)
        #: The first pass, until it is read.
        self._begun: Iterator[object] | None = itertools.chain(looked_at, unread)
        #: Numbers about the rows of the first batches, to compare them with those of other workers.
        self.summary = [number for batch in looked_at for number in _summary(batch)]
        self.element_spec = tf.nest.map_structure(_spec, *looked_at)
        self.example = self._tensors(looked_at[0])

    def __iter__(self) -> Iterator[Any]:
        batches, self._begun = self._begun or self._pass(), None
        while True:
            empty = True
            for batch in batches:
                empty = False
                if self._skipped:
                    self._skipped -= 1
                else:
                    yield self._own(batch)
            if empty:  # a generator stays at its end
                raise _no_batch()
            if not self._endless:
                return
            batches = self._pass()

    def skip_passes(self, rest: int) -> None:
        """Read the passes before that of the first step, of which ``rest`` batches are skipped later."""
        while self._skipped > rest:
            read = sum(1 for _ in self._begun or self._pass())
            self._begun, self._skipped = None, max(rest, self._skipped - read)
            if not read:
                raise _no_batch()

    def count(self) -> int:
        """Return the number of batches of a pass, which this reads."""
        return sum(1 for _ in self._begun or self._pass())

    def _pass(self) -> Iterator[object]:
        number = self._next
        self._next += 1
        return map(self._as_batch, self._one_pass(number))

    def _as_batch(self, batch: Any) -> object:
        """Return a batch as arrays in the structure in which it was given: ``x``, or a tuple of parts."""
        whole = isinstance(batch, tuple | list)
        parts = [part for part in batch if part is not None] if whole else [batch]
        if self.form is None:
            self.form = self._given.of_batches(parts)
        made = tuple(map(_numpy, self.form.matched(parts, self._name)))
        return made if whole else made[0]

    def look(self) -> Any:
        """Return this worker's rows of the first batch."""
        return self._rows_of(self.example)

    def _own(self, batch: object) -> Any:
        if self._place[0] > 1:
            check_rows([batch])
        return self._rows_of(self._tensors(batch))

    def _rows_of(self, tensors: object) -> object:
        shares, own = self._place
        return tensors if shares == 1 else take_rows(tensors, shares, own)

    def _tensors(self, batch: object) -> object:
        return tf.nest.map_structure(
            lambda array, spec: tf.constant(array, spec.dtype), batch, self.element_spec
        )


def fed_batches(
    call: Callable[[], Any], made: Any, context: WorkerContext, steps: int | None, name: str,
    form: Form | None = None,
) -> tuple[FedBatches, int | None]:  # fmt: skip
    """Return the batches of a Python object, and their number in an epoch; None if it is not known."""
    start = reading_of(context).start
    if is_py_dataset(made):
        size = count_batches(made, name)
        order = Order(size, 1, context.seed, context.shuffle)
        first, skipped = divmod(start, size)

        def of_data(number: int) -> Iterator[object]:
            if number > first:
                made.on_epoch_end()
            made.on_epoch_begin()
            indices = order.block(number * size, size).reshape(-1)
            batches = pass_of(made, indices[skipped:] if number == first else indices)
            # As Keras does: only a dictionary reaches the step without a tuple.
            return (batch if isinstance(batch, dict | tuple | list) else (batch,) for batch in batches)

        for _ in range(first):  # as if these passes had been read
            made.on_epoch_begin()
            made.on_epoch_end()
        batches = FedBatches(of_data, context, endless=True, first=first, name=name, form=form)
        return batches, steps or size
    again = not isinstance(call, GivenBatches) and not isinstance(made, Pull)  # a new one for each pass
    if steps is None and context.num_workers > 1:
        if not again:
            raise needs_steps(name)
        with tf_internals.undisturbed_random_numbers():  # one worker does not count
            steps = FedBatches(lambda number: iter(call()), context, endless=False).count()
    unread = [made]

    def of_generator(number: int) -> Iterator[Any]:
        return iter(made if not again else unread.pop() if unread else call())

    endless = steps is not None
    return FedBatches(of_generator, context, endless=endless, skipped=start, name=name, form=form), steps


def _no_batch() -> ArgumentError:
    return ArgumentError(
        "A generator must yield at least one batch for each pass over its data.",
        received="an exhausted generator",
        fix="Make it yield the batches of all epochs, or pass the function that makes it.",
    )


def _numpy(value: Any) -> object:
    if tf.is_tensor(value):
        return value.numpy()
    return as_arrays(value, "x")


def _summary(batch: object) -> list[float]:
    """Return a number for each of the first rows of a batch: the mean size of its values."""

    def of_row(row: Array) -> float:
        if row.dtype.kind in "biufc":
            return float(np.abs(row.astype(np.complex128)).mean()) if row.size else 0.0
        return float(zlib.crc32(repr(row.tolist()).encode()))

    arrays = [np.asarray(array) for array in tf.nest.flatten(batch)]
    return [of_row(row) for array in arrays for row in array[:_COMPARED]]


def _spec(*arrays: Array) -> tf.TensorSpec:
    """Return the type of arrays, whose first dimension and varying dimensions are not known."""
    shapes = [array.shape[1:] for array in arrays]
    sides = [sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*shapes, strict=True)]
    return tf.TensorSpec([None, *sides], tf.as_dtype(batch_type(arrays[0].dtype)))
