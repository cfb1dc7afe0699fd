"""A step of a model on virtual workers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.collectives.interface import add_pairs
from tfdistr.collectives.sum_tree import SumTree
from tfdistr.data.order.shard import cut_rows
from tfdistr.errors import ArgumentError
from tfdistr.strategies.exact.loss_weighting import count_examples
from tfdistr.strategies.exact.replica import OneReplica
from tfdistr.strategies.exact.step_logs import MetricResults, flat_logs
from tfdistr.strategies.virtual.operations import check_operations
from tfdistr.strategies.virtual.share import (
    ShareExchange,
    ShareStep,
    Update,
    sent_gradients,
    share_step,
)
from tfdistr.strategies.virtual.stages import Stages, apart


class VirtualWorkers:
    """The virtual workers of this worker; ``count`` is the number of those of all workers."""

    def __init__(self, extended: OneReplica, count: int) -> None:
        self._extended = extended
        self.tree = SumTree(count, extended.num_workers)
        #: Number of virtual workers of all workers.
        self.count = count
        #: The virtual workers of this worker.
        self.own = self.tree.leaves_of(extended.worker_index)

    @property
    def place(self) -> tuple[int, range]:
        """The number of shares of a batch, and this worker's shares; see ``bounds``."""
        return self.count, self.own

    def sum(self, values: Mapping[int, Sequence[tf.Tensor]]) -> list[tf.Tensor]:
        """Sum tensors over all virtual workers."""
        nodes = [
            self.tree.total(lambda leaf: list(values[leaf[0]]), add_pairs, node)
            for node in self.tree.nodes(self._extended.worker_index)
        ]
        collectives = self._extended.collectives
        if collectives is None or not nodes[0]:
            return list(nodes[0])
        return collectives.sum_in_order(self.tree, nodes)


def run_virtual_workers(extended: OneReplica, fn: Any, args: Sequence[Any], kwargs: Any) -> Any:
    """Run Keras's function for ``strategy.run`` on this worker's virtual workers.

    Return the logs of the whole batch, or predictions of this worker's rows.
    """
    predicting = tf_internals.keras_prediction(fn)
    step = (predicting, fn) if predicting is not None else tf_internals.keras_step(fn, inline=True)
    if step is None or kwargs:
        raise ArgumentError(
            "With virtual workers, a strategy runs the steps of Keras's fit, evaluate and predict only.",
            received=f"strategy.run() with the function {getattr(fn, '__name__', fn)!r}",
            fix="Put the step into train_step() of a keras.Model, or make the strategy without "
            "virtual_workers.",
        )
    model, call = step
    own = call if predicting is not None else lambda *arguments: flat_logs(call(*arguments))
    data, *others = args
    data = tf.nest.map_structure(extended.local, data)
    with extended.within(kind=fn.__name__.removesuffix("_step")):
        return _TracedStep(extended, model, own, others, predicts=predicting is not None).run(data)


class _Results:
    """The results of the step of one virtual worker.

    Args:
        dtype: The type in which gradients are summed; None for their own.
        predicts: Whether the results are predictions.
    """

    def __init__(
        self, step: ShareStep, virtual_worker: tf.Tensor, count: int, dtype: tf.DType | None, predicts: bool
    ) -> None:
        self.step = step
        is_last = tf.equal(virtual_worker, count - 1)
        #: Tensors that are summed (gradients, new values of variables, and logs that are no metrics), and
        #: tensors of gradients that are concatenated.
        self.dense, self.slices = sent_gradients(step.updates, dtype)
        self.dense += step.losses
        #: Predictions, which are concatenated.
        self.rows: list[tf.Tensor] = []
        #: Whether the loss is not finite, if there is a loss.
        self.flags = [] if step.bad is None else [step.bad]
        for variable, value in step.summed:
            self.dense.append(_part(value, step.aggregation(variable), step.weight, is_last))
        if predicts:
            self.rows = [row[: step.examples] for row in tf.nest.flatten(step.logs.value)]
        elif not step.logs.are_metrics:
            self.dense += [_part(log, kind, step.weight, is_last) for log, kind in _other_logs(step)]

    @property
    def groups(self) -> list[list[tf.Tensor]]:
        """The tensors: those that are summed, slices, rows and flags."""
        return [self.dense, self.slices, self.rows, self.flags]


def _part(value: tf.Tensor, aggregation: str, weight: tf.Tensor, is_last: tf.Tensor) -> tf.Tensor:
    """Return a share's part of the sum that becomes the value of a variable or a log."""
    if value.dtype == tf.bool:
        value = tf.cast(value, tf.int32)
    elif value.dtype.is_integer and value.dtype not in (tf.int32, tf.int64):
        value = tf.cast(value, tf.int64)
    if aggregation == "mean" and value.dtype.is_floating:
        return tf.math.multiply_no_nan(value, tf.cast(weight, value.dtype))
    counts = weight > 0 if aggregation == "sum" else is_last  # the last share is never empty
    return tf.where(counts, value, tf.zeros_like(value))


def _other_logs(step: ShareStep) -> list[tuple[tf.Tensor, str]]:
    """Return the logs that are tensors and no results of metrics, each with what it is: "sum" or "mean"."""
    value = step.logs.value
    named = value if isinstance(value, dict) else dict(enumerate(tf.nest.flatten(value)))
    logs = [(name, part) for name in sorted(named) for part in tf.nest.flatten(named[name])]
    return [
        (log, "sum" if name in step.logs.sums else "mean")
        for name, log in logs
        if isinstance(log, tf.Tensor) and step.logs.results.metric_of(log) is None
    ]


class _TracedStep:
    """One step: ``fn`` on a batch and the other arguments that Keras passes to it."""

    def __init__(
        self,
        extended: OneReplica,
        model: keras.Model,
        fn: object,
        others: Sequence[object],
        *,
        predicts: bool,
    ) -> None:
        self._extended, self._model = extended, model
        self._virtual: VirtualWorkers = extended.virtual
        self._fn, self._others, self._predicts = fn, others, predicts

    def run(self, data: object) -> Any:
        """Make the step on this worker's rows."""
        rows = self._count_rows(data)
        parts = {v: self._rows_of(v, data, rows) for v in self._virtual.own}
        all_rows = tf.cast(rows, tf.float32)
        if tf.executing_eagerly():
            made = {v: self._results(part, tf.constant(v), all_rows) for v, part in parts.items()}
            step = made[self._virtual.own.start].step
            groups = [list(found.groups) for found in made.values()]
        else:
            step, groups = self._in_graph(parts, all_rows)
        dense, slices, predictions, flags = zip(*groups, strict=True)
        if self._predicts:
            together = [tf.concat(each, 0) for each in zip(*predictions, strict=True)]
            return tf.nest.pack_sequence_as(step.logs.value, together)
        sums = self._virtual.sum(dict(zip(parts, dense, strict=True)))
        gathered = self._gather([tf.concat(each, 0) for each in zip(*slices, strict=True)])
        bad = [tf.reduce_any(tf.stack([flag for each in flags for flag in each]))] if flags[0] else []
        return self._finish(step, [sums, gathered, bad])

    def _count_rows(self, data: object) -> tf.Tensor:
        """Return the number of rows of the global batch, int64."""
        if self._extended.step.known_rows is not None:
            return tf.cast(self._extended.step.known_rows, tf.int64)
        own = tf.cast(count_examples(data), tf.int64)
        collectives = self._extended.collectives
        return collectives.all_reduce(tf.distribute.ReduceOp.SUM, [own])[0] if collectives else own

    def _rows_of(self, virtual_worker: int, data: object, rows: tf.Tensor) -> object:
        count, own = self._virtual.place
        before = rows * own.start // count
        first, end = rows * virtual_worker // count - before, rows * (virtual_worker + 1) // count - before
        return cut_rows(data, lambda _: (first, end))

    def _results(self, data: object, virtual_worker: tf.Tensor, all_rows: tf.Tensor) -> _Results:
        extended = self._extended
        may_be_empty = not extended.step.never_empty
        with extended.replica_context():
            step = share_step(
                extended, self._model, self._fn, data, self._others, virtual_worker, all_rows, may_be_empty
            )
            return _Results(
                step, virtual_worker, self._virtual.count, extended.gradient_dtype, self._predicts
            )

    def _in_graph(
        self, parts: Mapping[int, object], all_rows: tf.Tensor
    ) -> tuple[ShareStep, list[list[list[tf.Tensor]]]]:
        """Trace the step of a virtual worker once, and call it for each."""
        form = tf.nest.map_structure(_spec, next(iter(parts.values())))
        made: list[_Results] = []

        def of_share(virtual_worker: tf.Tensor, all_rows: tf.Tensor, *components: tf.Tensor) -> object:
            data = tf.nest.pack_sequence_as(form, _with_none(form, components), expand_composites=True)
            made.append(self._results(data, virtual_worker, all_rows))
            return [tensor for group in made[0].groups for tensor in group]

        scalars = [tf.TensorSpec([], tf.int32), tf.TensorSpec([], tf.float32)]
        function = tf.compat.v1.wrap_function(of_share, [*scalars, *_components(form)])
        check_operations(function.graph)
        [traced] = made
        wanted = [tensor for group in traced.groups for tensor in group]
        inputs = function.inputs[: len(scalars) + len(_components(form))]
        stages = Stages(inputs, traced.step, wanted, function)
        known = [stages.begin([tf.constant(v), all_rows, *_components(part)]) for v, part in parts.items()]
        for number in range(len(stages.exchanges) + 1):
            for each in known:
                stages.run(number, each)
            if number < len(stages.exchanges):
                self._exchange(stages.exchanges[number], dict(zip(parts, known, strict=True)))
        found = []
        for each in known:
            results = iter(stages.results(each))
            found.append([[next(results) for _ in group] for group in traced.groups])
        return traced.step, found

    def _exchange(self, exchange: ShareExchange, known: Mapping[int, dict[Any, tf.Tensor]]) -> None:
        """Sum the values of an exchange over all shares, add the sums to ``known``, make its updates."""
        sums = self._virtual.sum({v: [each[t.ref()] for t in exchange.values] for v, each in known.items()})
        slices = [tf.concat([each[t.ref()] for each in known.values()], 0) for t in exchange.slices]
        gathered = self._gather(slices)
        if not exchange.updates:
            received = {t.ref(): v for t, v in zip(exchange.received, [*sums, *gathered], strict=True)}
            for each in known.values():
                each.update(received)
            return

        def change(*flat: tf.Tensor) -> None:
            with self._changing():
                self._update(exchange.updates, *map(iter, tf.nest.pack_sequence_as([sums, gathered], flat)))

        apart(change)(*sums, *gathered)

    def _gather(self, slices: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Concatenate values and indices over the workers: the rows have the order of the shares."""
        collectives = self._extended.collectives
        if collectives is None:
            return list(slices)
        pairs = zip(slices[::2], slices[1::2], strict=True)
        gathered = collectives.gather_rows([tf.IndexedSlices(values, indices) for values, indices in pairs])
        return [part for rows in gathered for part in (rows.values, rows.indices)]

    def _finish(self, step: ShareStep, results: list[list[tf.Tensor]]) -> object:
        """Change the variables; return the logs."""
        if tf.executing_eagerly():
            return self._change(step, *results)

        def change(*flat: tf.Tensor) -> Any:
            return self._change(step, *tf.nest.pack_sequence_as(results, flat))

        return apart(change)(*tf.nest.flatten(results))

    def _change(
        self, step: ShareStep, sums: list[tf.Tensor], slices: list[tf.Tensor], flags: list[tf.Tensor]
    ) -> object:
        extended, total = self._extended, iter(sums)
        with self._changing():
            self._update(step.updates, total, iter(slices))
            for _ in step.losses:
                extended.step.trace.note_loss(next(total))
            for variable, _ in step.summed:
                self._assign(variable, next(total), add=step.aggregation(variable) == "sum")
            for variable in step.changed:
                if tf_internals.is_seed(variable):
                    own = extended.local_variable(variable.value)
                    own.assign_add(tf.constant([0, step.draws[id(variable)]], own.dtype))
            for bad in flags if extended.collectives is not None else ():
                extended.checks.loss.note(bad)
            if step.logs.are_metrics:
                return self._model.get_metrics_result()
            logs = [_like(log, step.logs.results, total) for log in tf.nest.flatten(step.logs.value)]
            return tf.nest.pack_sequence_as(step.logs.value, logs)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Enter the context in which variables change, as in the step of one replica."""
        extended = self._extended
        with (
            extended.within(reported_replicas=1),
            extended.replica_context(),
            tf.device(extended.worker_devices[0]),
        ):
            yield

    @staticmethod
    def _update(updates: Sequence[Update], total: Iterator[tf.Tensor], part: Iterator[tf.Tensor]) -> None:
        """Let optimizers change weights, with the gradients of the whole batch."""
        for update in updates:
            gradients = [_received(gradient, total, part) for gradient in update.gradients]
            tf_internals.apply_sums(update.optimizer, update.apply, gradients, update.weights)

    def _assign(self, variable: Any, value: tf.Tensor, *, add: bool) -> None:
        own = self._extended.local_variable(variable.value)
        value = tf.cast(value, own.dtype)
        if add:
            own.assign_add(value)
        else:
            own.assign(value)


def _received(gradient: Any, total: Iterator[tf.Tensor], part: Iterator[tf.Tensor]) -> object:
    """Return the gradient of the whole batch, in the form of that of a share."""
    if gradient is None:
        return None
    if isinstance(gradient, tf.IndexedSlices):
        values = tf.cast(next(part), gradient.values.dtype)
        shape = tf.get_static_value(gradient.dense_shape) if gradient.dense_shape is not None else None
        return tf.IndexedSlices(values, next(part), None if shape is None else tf.constant(shape))
    return tf.cast(next(total), gradient.dtype)


def _like(log: object, results: MetricResults, total: Iterator[tf.Tensor]) -> object:
    """Return the log of the whole batch in place of that of a share."""
    metric = results.metric_of(log)
    if metric is not None:
        return metric.result()
    return tf.cast(next(total), log.dtype) if isinstance(log, tf.Tensor) else log


def _spec(value: Any) -> Any:
    """Return the form of a value with any number of rows."""
    if value is None:
        return None
    if isinstance(value, tf.Tensor):
        return tf.TensorSpec([None, *value.shape[1:]], value.dtype)
    if isinstance(value, tf.RaggedTensor):
        return tf.RaggedTensorSpec(
            [None, *value.shape[1:]], value.dtype, value.ragged_rank, value.row_splits.dtype
        )
    return tf.SparseTensorSpec([None, *value.shape[1:]], value.dtype)


def _components(value: object) -> list[tf.Tensor]:
    return [part for part in tf.nest.flatten(value, expand_composites=True) if part is not None]


def _with_none(form: object, components: Sequence[tf.Tensor]) -> list[object]:
    given = iter(components)
    return [None if spec is None else next(given) for spec in tf.nest.flatten(form, expand_composites=True)]
