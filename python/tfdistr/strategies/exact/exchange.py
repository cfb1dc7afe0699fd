"""The exchange of values between replicas, within a step of Keras's ``fit``, and ``gather()``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.errors import ArgumentError
from tfdistr.strategies.exact.tape_sums import OfSum, TapeSums
from tfdistr.utils.describe import describe

_ATTRIBUTE = "tfdistr_step"


class Weights(Protocol):
    """The weights of the replicas; ``MeanOverExamples`` explains them."""

    @property
    def loss_is_weighted(self) -> bool: ...

    tapes: TapeSums | None

    def weight(self) -> tf.Tensor: ...


class ReplicaStep:
    """The step of one replica, among replicas whose rows make up a global batch.

    Args:
        present: 0 if the replica has no rows but a row of zeros in their place, else 1; None for surely 1.
    """

    def __init__(self, weights: Weights, present: tf.Tensor | None, index: object, count: int) -> None:
        self.weights = weights
        self._present = present
        self._index, self._count = index, count
        self._reduce: Callable[..., object] | None = None
        #: Whether the model has exchanged values.
        self.has_communicated = False
        #: Whether the tape at work takes the gradient of a sum over rows, which gets no weight.
        self.of_sum: OfSum = False

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Make the replica's exchanges exact within the context. The replica's thread must call it."""
        context = tf.distribute.get_replica_context()
        self._reduce = context.all_reduce
        with (
            tf_internals.overridden(context, "all_reduce", self.all_reduce),
            tf_internals.overridden(context, "all_gather", self.all_gather),
            tf_internals.overridden(context, _ATTRIBUTE, self),
        ):
            try:
                yield
            except ValueError as error:  # Keras creates no variables where values are collected
                check_no_strange_optimizer(error)
                raise

    def enclose(self, fn: Callable[..., object]) -> Callable[..., object]:
        """Return a function for the replica that calls ``fn`` within the step."""

        def enclosed(*args: object, **kwargs: object) -> object:
            with self.entered():
                return fn(*args, **kwargs)

        return enclosed

    def all_reduce(self, reduce_op: object, value: object, options: object = None) -> Any:
        """Call ``tf.distribute.ReplicaContext.all_reduce``; its gradient weights replicas by their rows.

        The gradient of a sum over replicas is the sum of the replicas' gradients. If a step weighs its
        gradients after they are taken, the sum needs the weights, and the replica's own weight is taken out
        again, because it will come. A gradient that is a part of a loss, within another tape, is no sum that
        the step weighs.
        """
        assert self._reduce is not None
        check_no_strange_optimizer()
        self.has_communicated = True
        reduce, parts = self._reduce, tf.nest.flatten(value)
        if not all(isinstance(part, tf.Tensor) and part.dtype.is_floating for part in parts):
            return reduce(reduce_op, value, options)

        @tf.custom_gradient  # type: ignore[untyped-decorator]
        def reduced(*tensors: tf.Tensor) -> tuple[object, Callable[..., object]]:
            def gradient(*upstream: tf.Tensor) -> Any:
                if self.weights.loss_is_weighted or tf_internals.tape_is_active():
                    return self.all_reduce(reduce_op, list(upstream))
                weight = self.weights.weight()
                if self.of_sum is not False:
                    weight = tf.where(self.of_sum, tf.ones_like(weight), weight)
                sums = self.all_reduce(reduce_op, [scale(part, weight) for part in upstream])
                inverse = tf.math.divide_no_nan(tf.ones_like(weight), weight)
                return [scale(total, inverse) for total in sums]

            return reduce(reduce_op, list(tensors), options), gradient

        return tf.nest.pack_sequence_as(value, reduced(*parts))

    def all_gather(self, value: Any, axis: Any, options: Any = None) -> object:
        """Call ``tf.distribute.ReplicaContext.all_gather``, without the row of zeros of an empty replica."""
        return tf.nest.map_structure(lambda part: self.gather(part, int(axis)), value)

    def gather(self, value: Any, axis: int = 0) -> tf.Tensor:
        """Concatenate the replicas' tensors along ``axis``, in the order of the rows of the batch.

        Each replica sums its rows, at their offset among zeros, with those of the others. So one mechanism
        serves all backends, and its gradients have gradients.
        """
        kind = value.dtype
        small = kind == tf.bool or (kind.is_integer and kind.size < tf.int32.size)
        tensor = tf.cast(value, tf.int32) if small else value  # a type that all backends can add
        axis = axis % tensor.shape.rank
        size = tf.shape(tensor, tf.int64)[axis]
        own = size if self._present is None else size * tf.cast(self._present, tf.int64)
        before, total = self._place_of(own)
        after = total - before - own
        rows = tensor[(slice(None),) * axis + (slice(own),)]
        edges = [[before, after] if side == axis else [0, 0] for side in range(tensor.shape.rank)]
        padded = tf.pad(rows, tf.cast(edges, tf.int64))
        shape = tensor.shape.as_list()
        shape[axis] = None
        total = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, padded)
        return tf.cast(tf.ensure_shape(total, shape), kind)

    def _place_of(self, own: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the number of rows before this replica's ``own`` rows, and that of all rows."""
        place = tf.one_hot(self._index, self._count, dtype=tf.int64)
        sizes = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, place * own)
        return tf.reduce_sum(tf.where(tf.range(self._count) < self._index, sizes, 0)), tf.reduce_sum(sizes)

    def rows_of(self, whole: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """Return the replica's rows, one at least, of a tensor with the rows of all."""
        own = tf.cast(rows, tf.int64)
        before, _ = self._place_of(own)
        size = own if self._present is None else tf.maximum(own, 1)
        begin = tf.minimum(before, tf.shape(whole, tf.int64)[0] - size)
        return whole[begin : begin + size]


def current_step() -> ReplicaStep | None:
    """Return the step of the replica that runs on this thread; None outside of such a step."""
    context = tf.distribute.get_replica_context()
    return getattr(context, _ATTRIBUTE, None)


@contextlib.contextmanager
def sums_from_tapes() -> Iterator[None]:
    """Make ``GradientTape.gradient`` sum gradients of variables over the replicas, within the context.

    Methods for Jacobians call it for each row or output, of which every replica has its own number.
    """
    of_tape = tf.GradientTape.gradient

    def gradient(
        tape: tf.GradientTape, target: object, sources: object, *args: object, **kwargs: object
    ) -> Any:
        step = current_step()  # of the replica on this thread
        tapes = step.weights.tapes if step else None
        if step is None or tapes is None:
            return of_tape(tape, target, sources, *args, **kwargs)
        of_sum = tapes.of_sum(target, has_communicated=step.has_communicated)
        with tf_internals.overridden(step, "of_sum", of_sum):
            gradients = of_tape(tape, target, sources, *args, **kwargs)
        return tapes.summed(sources, gradients, of_sum)

    with contextlib.ExitStack() as stack:
        stack.enter_context(tf_internals.overridden(tf.GradientTape, "gradient", gradient))
        for name in ("jacobian", "batch_jacobian"):
            stack.enter_context(tf_internals.overridden(tf.GradientTape, name, _without_sums(name)))
        yield


def _without_sums(name: str) -> Callable[..., object]:
    method = getattr(tf.GradientTape, name)

    def unsummed(tape: tf.GradientTape, *args: object, **kwargs: object) -> object:
        step = current_step()
        tapes = step.weights.tapes if step else None
        with tapes.paused(f"tape.{name}()") if tapes else contextlib.nullcontext():
            return method(tape, *args, **kwargs)

    return unsummed


def check_no_strange_optimizer(error: BaseException | None = None) -> None:
    """Refuse an optimizer that the model does not hold, at work here or where ``error`` was raised."""
    optimizer = tf_internals.optimizer_at_work(error)
    if optimizer is not None:
        raise ArgumentError(
            "An optimizer that a step applies must be an attribute of the model or of one of its layers.",
            received=f"an optimizer of the class {type(optimizer).__name__} that is no attribute of them",
            fix="Make it in __init__() or compile(), and assign it: self.d_optimizer = ...",
        ) from error


class NoPeers:
    """The stand-in for the peers of a replica that runs by itself: sums are its own values."""

    loss_is_weighted = True
    tapes: TapeSums | None = None

    def weight(self) -> tf.Tensor:
        """Return the part of the examples that the replica has: all of them."""
        return tf.ones([], tf.float64)

    def all_reduce(self, op: object, tensors: Sequence[object], dtype: object = None) -> list[Any]:
        """Return the replica's tensors."""
        return list(tensors)


def scale(value: Any, factor: tf.Tensor) -> Any:
    """Return ``value * factor``; it is 0 if the factor is 0, even if the value is NaN."""
    if isinstance(value, tf.IndexedSlices):
        return tf.IndexedSlices(scale(value.values, factor), value.indices, value.dense_shape)
    return tf.math.multiply_no_nan(value, tf.cast(factor, value.dtype))


def gather(value: object) -> tf.Tensor:
    """Gather the rows of all workers.

    For a loss that compares the examples of a batch with each other: a contrastive loss (SimCLR, CLIP), a
    balance term, a distance of distributions. Call it in the loss, in the model or in ``train_step``, in the
    steps of Keras's ``fit`` and of ``distributed_fit()``. Every worker then computes the loss of the whole
    batch, and the gradient is that of one worker, also if the rows are split unevenly.

    On one worker, outside of a strategy, and while Keras builds a model, it returns its input. With
    ``virtual_workers`` it gathers the rows of all of them.

    Args:
        value: A dense tensor of shape ``(rows, ...)``: numbers or logical values of this worker's rows.

    Returns:
        A tensor of the same type, with the rows of all workers in the order of the global batch. Its gradient
        goes back to these rows.

    Raises:
        ArgumentError: ``value`` is not of the form above, or the call is in the scope of a strategy with
            several workers, but not in a Keras step.

    Example:
        >>> def clip_loss(y_true, y_pred):
        ...     images, texts = tf.split(tfdistr.gather(y_pred), 2, axis=1)
        ...     logits = images @ tf.transpose(texts)
        ...     pairs = tf.range(tf.shape(logits)[0])
        ...     return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(pairs, logits))
        >>> float(clip_loss(None, tf.eye(2, 4)))
        0.5032044649124146
    """
    tensor = _rows(value)
    if tf_internals.keras_is_symbolic():
        return tensor
    step = current_step()
    if step is not None:
        return step.gather(tensor)
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    if replicas > 1:
        alone = tf.distribute.in_cross_replica_context()
        raise ArgumentError(
            "gather() must be called in a step of Keras's fit(), evaluate() or predict().",
            received=f"a call in {'the scope of a strategy' if alone else 'strategy.run()'}, for {replicas} "
            "replicas",
            fix="Call it in the loss, the model or train_step(). In a custom training loop call "
            "tf.distribute.get_replica_context().all_gather(value, axis=0) on the replicas.",
        )
    return tensor


def _sum_over_replicas(value: tf.Tensor) -> tf.Tensor:
    """Return the sum of the replicas' tensors in a Keras step."""
    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, value)


#: For losses and metrics of the whole batch.
ROWS_OF_ALL = tf_internals.RowsOfAll(gather, _sum_over_replicas)


def _rows(value: object) -> tf.Tensor:
    dense = not isinstance(value, tf.RaggedTensor | tf.SparseTensor | tf.IndexedSlices)
    try:
        tensor = tf.convert_to_tensor(value) if dense else None
    except (TypeError, ValueError):
        tensor = None
    if tensor is None or tensor.shape.rank in (None, 0) or tensor.dtype == tf.string:
        raise ArgumentError(
            "`value` must be a dense tensor of numbers whose first dimension is the rows.",
            received=describe(value) if tensor is None else f"a {tensor.dtype.name} of shape {tensor.shape}",
            fix="Convert it: ragged rows by value.to_tensor(shape=...), a number to one for each row.",
        )
    return tensor
