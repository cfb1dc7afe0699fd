"""A check on the first batch that the workers' gradients add up to the gradient of one worker.

They do if a step is a mean over the examples of a batch. A contrastive loss is not, and neither is a gradient
that a step clips by itself: each worker would use its own rows only. The check runs the step on a
few rows, eagerly, and restores all variables:

* Rows A and B make up batches of the same size: AB, BA, AA and BB. For a mean over examples the gradients of
  AB and BA are together those of AA and BB. A random layer draws the same numbers for the same place in a
  batch, so that it makes no difference here.
* Batches A and B of half the size show a sum in place of a mean. The gradients of A and B differ twice as
  much as those of AB and BB.

Batch statistics do not count: BatchNormalization uses its moving averages in the check. Masks and weights of
examples do not count either: losses are weighted as ``exact_step`` weights them.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.data.order.shard import cut_rows
from tfdistr.strategies.exact.exchange import NoPeers, ReplicaStep
from tfdistr.strategies.exact.loss_weighting import count_examples
from tfdistr.strategies.exact.replica import OneReplica
from tfdistr.utils.warn import ABOUT_BATCH

log = logging.getLogger("tfdistr")

#: Rows of A and of B.
_ROWS = 4
# Differences relative to the gradient of a variable. In 32 bits, rounding made less than 1e-5 of it in
# the about 100 models of tests/equality, and a batch loss made at least 1e-4 in those of test_batch_check.py.
_TOLERANCE = {"float32": 5e-5, "float64": 1e-8}
_TOLERANCE_OF_16_BITS = 5e-2
# Smaller gradients count as this part of the largest one: what they differ by may be its rounding.
_SMALLEST = 0.1

_WAYS_OUT = (
    "Gather the rows of all workers with tfdistr.gather() and compute the loss of the whole batch; let the "
    "optimizer clip (clipnorm, global_clipnorm), which is exact; or, if you know this, filter warnings of "
    "the class BatchLossWarning (R: tfdistr_warning_batch_loss)."
)

Gradients = list[np.ndarray[Any, Any]]


def check_batch(
    extended: OneReplica,
    model: keras.Model,
    look: Callable[[], Any],
    weigh: Callable[[Any], Any] | None = None,
) -> None:
    """Warn if a model's step computes something over its batch that is no mean over examples.

    Only the chief checks, and only models whose step has parts that are not Keras's own. A step that
    communicates, as with ``gather()``, knows of the other workers. A step that runs eagerly may change more
    than variables, so it is not checked.

    Args:
        extended: Runs the replica.
        model: A built model.
        look: Returns some rows of the data; None if they cannot be read without an effect.
        weigh: Applied to the rows before the step.
    """
    several = extended.num_workers > 1 or extended.virtual is not None
    if not (several and extended.is_chief and extended.one_replica) or model.run_eagerly:
        return
    parts = tf_internals.own_parts(model)
    if not parts:
        return
    names = " and ".join([f"{', '.join(parts[:-1])}", parts[-1]] if len(parts) > 1 else parts)
    try:
        with tf_internals.undisturbed_random_numbers():
            rows = look()
            if rows is None:
                return
            warning = _compare(extended, model, weigh(rows) if weigh else rows, names)
    except Exception as error:  # the step itself will raise it, with its full traceback
        log.debug("The check of %s failed: %s", names, error)
        return
    if warning is not None:
        log.warning("%s", warning, extra=ABOUT_BATCH)


def _compare(extended: OneReplica, model: keras.Model, batch: Any, names: str) -> str | None:
    """Return the warning about the parts with these names; None if there is none."""
    rows = tf.cast(tf.minimum(_ROWS, count_examples(batch) // 2), tf.int64)
    if rows == 0:
        return None
    a, b = cut_rows(batch, lambda _: (tf.zeros_like(rows), rows)), cut_rows(batch, lambda _: (rows, 2 * rows))
    noise = _CheckedSums({"AB": 1, "again": -1})
    over_batch = _CheckedSums({"AB": 1, "BA": 1, "AA": -1, "BB": -1})
    sums = _CheckedSums({"A": 1, "B": -1, "AB": -2, "BB": 2})
    probe = _GradientProbe(extended, model)
    batches = {"AB": (a, b), "again": (a, b), "BA": (b, a), "AA": (a, a), "BB": (b, b), "A": (a,), "B": (b,)}
    for name, parts in batches.items():
        gradients = probe.gradients(_concatenated(parts))
        if probe.communicates or not gradients:
            return None
        if not all(np.isfinite(gradient).all() for gradient in gradients):
            return (
                f"Cannot check whether {names} can be split over workers: the gradient is not finite on the "
                "first rows of the data. Check for values that are not finite, and for a division by zero."
            )
        for each in (noise, over_batch, sums):
            each.add(name, gradients)
    apart = max(over_batch.size, sums.size)
    if apart <= _tolerance(model) + 10 * noise.size:
        return None
    percent = f"{100 * apart:.2g} %"
    return (
        f"The result on several workers is not that of one worker: the gradient of {names} is no mean over "
        f"the examples of a batch (on the first rows it differs by {percent}), and each worker computes it "
        f"of its own rows. {_WAYS_OUT}"
    )


def _tolerance(model: keras.Model) -> float:
    kinds = {variable.dtype for variable in model.trainable_variables}
    kinds |= {layer.compute_dtype for layer in tf_internals.all_layers(model)}
    return max(_TOLERANCE.get(kind, _TOLERANCE_OF_16_BITS) for kind in kinds if "float" in kind)


class _CheckedSums:
    """A sum of the gradients of several batches, each with a factor.

    Args:
        factors: The factors by the names of the batches.
    """

    def __init__(self, factors: dict[str, int]) -> None:
        self._factors = factors
        self._totals: Gradients = []
        self._sizes: list[float] = []

    def add(self, name: str, gradients: Gradients) -> None:
        """Add the gradients of a batch, if it has a factor."""
        factor = self._factors.get(name)
        if factor is None:
            return
        norms = [float(np.linalg.norm(gradient)) for gradient in gradients]
        if not self._totals:
            self._totals, self._sizes = [factor * gradient for gradient in gradients], norms
            return
        for total, gradient in zip(self._totals, gradients, strict=True):
            np.add(total, factor * gradient, out=total)
        self._sizes = [max(pair) for pair in zip(self._sizes, norms, strict=True)]

    @property
    def size(self) -> float:
        """The largest sum of a variable, relative to its gradients."""
        least = _SMALLEST * max(self._sizes) or 1.0
        pairs = zip(self._totals, self._sizes, strict=True)
        return max(float(np.linalg.norm(total)) / max(size, least) for total, size in pairs)


def _concatenated(parts: Sequence[Any]) -> Any:
    def join(*each: Any) -> Any:
        if each[0] is None or len(each) == 1:
            return each[0]
        return tf.sparse.concat(0, list(each)) if isinstance(each[0], tf.SparseTensor) else tf.concat(each, 0)

    return tf.nest.map_structure(join, *parts)


def _of_tensorflow(variable: Any) -> Any:
    return variable if isinstance(variable, tf.Variable) else variable.value


class _GradientProbe:
    """A run of a model's step that restores all changes.

    Args:
        extended: Runs the replica.
        model: The model.

    Attributes:
        communicates: Whether the step exchanges values with other replicas.
    """

    def __init__(self, extended: OneReplica, model: keras.Model) -> None:
        self._extended, self._model = extended, model
        known = tf_internals.keras_step(model.train_step)
        self._step = known[1] if known else model.train_step
        self.communicates = False
        # For each gradient of an embedding, the rows that the first batch has; the others have no others.
        self._rows: dict[int, np.ndarray[Any, Any]] = {}

    def gradients(self, batch: Any) -> Gradients:
        """Return the gradients that the step gives to its optimizers."""
        found: Gradients = []
        rows = tf.cast(count_examples(batch), tf.float64)

        def collect(
            optimizer: Any, gradients: Sequence[Any], variables: Any, own: tf_internals.Apply
        ) -> None:
            found.extend(self._dense(gradient, len(found)) for gradient in gradients if gradient is not None)

        def share(divisor: tf.Tensor | None) -> tf.Tensor:
            return (1.0 if divisor is None else tf.cast(divisor, tf.float64)) / rows

        replica = ReplicaStep(NoPeers(), None, 0, 1)
        with (
            self._restored(),
            self._extended.without_peers(),
            replica.entered(),
            tf_internals.silent_batch_statistics(self._model),
            tf_internals.optimizer_hooks(self._model, lambda loss: loss, collect),
            tf_internals.loss_shares(self._model, share, lambda: tf.ones([], tf.float64)),
        ):
            self._step(batch)
        self.communicates = self.communicates or replica.has_communicated
        return found

    def _dense(self, gradient: Any, number: int) -> np.ndarray[Any, Any]:
        """Return a gradient as an array of at least 32 bits; of an embedding, the rows of the first batch."""
        dtype = gradient.dtype if gradient.dtype == tf.float64 else tf.float32
        if not isinstance(gradient, tf.IndexedSlices):
            return np.array(tf.cast(gradient, dtype))
        indices, values = gradient.indices.numpy(), tf.cast(gradient.values, dtype).numpy()
        rows = self._rows.setdefault(number, np.unique(indices))
        dense = np.zeros((len(rows), *values.shape[1:]), values.dtype)
        np.add.at(dense, np.searchsorted(rows, indices), values)
        return dense

    @contextlib.contextmanager
    def _restored(self) -> Iterator[None]:
        common = tf_internals.existing_seed_generator()
        generators = [*tf_internals.seed_generators(self._model), *([common] if common else [])]
        seeds = [generator.state for generator in generators]
        variables = itertools.chain(tf_internals.variables_of(self._model), seeds)
        own = [self._extended.local_variable(_of_tensorflow(variable)) for variable in variables]
        kept = {id(variable): (variable, variable.read_value()) for variable in own}
        with tf_internals.undisturbed_random_numbers(), tf_internals.no_new_seed_generator():
            try:
                yield
            finally:
                for variable, value in kept.values():
                    variable.assign(value)
