"""The step of one virtual worker: a function of its rows that changes nothing.

The function is traced once, whatever the number of virtual workers. The optimizer does not run in it: its
results are gradients and new values of variables. Some models exchange values between replicas before that:
synchronized normalization, and losses that divide by a number which all shares decide. The function is cut
there into stages. The first stage returns the values to exchange; the next stage gets their sums.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import tensorflow as tf

from tfdistr import _private
from tfdistr.errors import ArgumentError
from tfdistr.strategies.exact_step import MeanOverExamples, at_least_one, count_examples
from tfdistr.strategies.replica import OneReplica, scale


@dataclass
class Exchange:
    """Values of a share that are summed over all shares, and their sums.

    Attributes:
        values: The values of the share.
        sums: The sums over all shares.
    """

    values: list[tf.Tensor]
    sums: list[tf.Tensor]


@dataclass
class ShareStep:
    """What the step of a virtual worker has computed.

    Attributes:
        gradients: The gradients of the loss, weighted; None where a weight has no gradient.
        weights: The Keras variables of the gradients.
        changed: Keras variables that the step would change.
        values: The new values of these variables; for a variable that sums, the part of this share.
        draws: By the ids of generators of random numbers, how often the step has drawn.
        logs: What the step returns.
        logs_are_metrics: Whether these are the values of all metrics.
        examples: Number of rows of the share.
        weight: The part of the global batch that this share has.
        bad: Whether the loss is not finite.
        exchanges: What the share exchanges, in order.
    """

    gradients: list[Any] = field(default_factory=list)
    weights: list[Any] = field(default_factory=list)
    changed: list[Any] = field(default_factory=list)
    values: list[tf.Tensor] = field(default_factory=list)
    draws: dict[int, int] = field(default_factory=dict)
    logs: Any = None
    logs_are_metrics: bool = False
    examples: Any = None
    weight: Any = None
    bad: Any = None
    exchanges: list[Exchange] = field(default_factory=list)

    @property
    def summed(self) -> list[tuple[Any, tf.Tensor]]:
        """The changed variables whose values are summed, all but generators, with these values."""
        pairs = zip(self.changed, self.values, strict=True)
        return [(variable, value) for variable, value in pairs if not _private.is_seed(variable)]


class Share:
    """One virtual worker in a step. Its attributes are those of ``exact_step.Replica``.

    Args:
        rows: Number of rows of the share, int32.
        all_rows: Number of rows of the global batch, float32.
        may_be_empty: Whether the share may have no rows.
        count: Number of shares.
    """

    gradient_dtype = None

    def __init__(self, rows: tf.Tensor, all_rows: tf.Tensor, may_be_empty: bool, count: int) -> None:
        self.rows = rows
        self._count = count
        self.known_rows: tf.Tensor | None = all_rows
        self.present = tf.sign(tf.cast(rows, tf.float32)) if may_be_empty else None
        self.replica_reductions = 0
        self.step = ShareStep()
        self.mean = MeanOverExamples(self, self, rows)
        self._graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()

    def all_reduce(
        self, op: tf.distribute.ReduceOp, tensors: Sequence[Any], dtype: tf.DType | None = None
    ) -> list[Any]:
        """Stop for the sums over all shares."""
        if self._graph is None or tf.compat.v1.get_default_graph() is not self._graph:
            raise ArgumentError(
                "With virtual workers, a model may exchange values between replicas in its own step only: not "
                "in a loop or a branch of TensorFlow, and not with run_eagerly=True.",
                received="an all-reduce in such a place",
                fix="Move the layer, such as BatchNormalization(synchronized=True), out of it.",
            )
        self.replica_reductions += 1
        values = [tf.convert_to_tensor(tensor) for tensor in tensors]
        if self.present is not None:
            values = [scale(v, self.present) if v.dtype.is_floating else v for v in values]
        sums = [tf.compat.v1.placeholder(value.dtype, value.shape) for value in values]
        self.step.exchanges.append(Exchange(values, sums))
        if op == tf.distribute.ReduceOp.MEAN:
            return [total / self._count for total in sums]
        return sums


def share_step(
    extended: OneReplica,
    model: keras.Model,
    fn: Any,
    data: Any,
    others: Sequence[Any],
    virtual_worker: tf.Tensor,
    all_rows: tf.Tensor,
    may_be_empty: bool,
) -> ShareStep:
    """Make the step ``fn`` of a model on the rows of one virtual worker, without changing anything.

    Args:
        extended: Runs the replica.
        model: The model.
        fn: The ``train_step`` or ``test_step`` of the model, or a function that predicts.
        data: The rows of the share.
        others: Further arguments of ``fn``.
        virtual_worker: The number of the virtual worker.
        all_rows: Number of rows of the global batch, float32.
        may_be_empty: Whether the share may have no rows.

    Raises:
        ArgumentError: The step does something that cannot be split into shares.
    """
    share = Share(count_examples(data), all_rows, may_be_empty, extended.virtual.count)
    step = share.step

    def scale_loss(loss: tf.Tensor) -> tf.Tensor:
        step.bad = (share.rows > 0) & ~tf.reduce_all(tf.math.is_finite(loss))
        return share.mean.scale_loss(loss)

    def collect(gradients: Sequence[Any], weights: Sequence[Any]) -> None:
        if step.weights:
            raise ArgumentError(
                "With virtual workers, a train_step must change the weights once, at its end.",
                received="a second call of optimizer.apply() in a step",
                fix="Train without virtual_workers, or with one optimizer whose gradients come together.",
            )
        step.gradients = [g if g is None or share.present is None else scale(g, share.present) for g in gradients]
        step.weights = list(weights)
        scope.close(weights)

    optimizer = model.optimizer.variables if model.optimizer is not None else ()
    scope = _private.ShareScope(virtual_worker, [*model.trainable_variables, *optimizer], _refuse)
    extended.share, before = share, extended.share
    extended.replicas_to_tell = 1
    try:
        with (
            scope,
            _private.collected_gradients(model, scale_loss, collect),
            _private.loss_shares(model, share.mean.share, share.mean.weight),
            tf.device(extended.worker_devices[0]),
        ):
            batch = at_least_one(data, share.rows) if may_be_empty else data
            step.logs = fn(batch, *others)
            scope.close(())
            step.logs_are_metrics = _private.logs_are_metrics(model, step.logs)
            step.examples = share.rows
            step.changed = list(scope.changed)
            step.values = [_value_of(scope, variable) for variable in step.changed]
            step.draws = {id(v): scope.changes[id(v)] for v in step.changed if _private.is_seed(v)}
            step.weight = share.mean.weight()
    finally:
        extended.share = before
        extended.replicas_to_tell = None
    return step


def _value_of(scope: Any, variable: Any) -> tf.Tensor:
    return tf.convert_to_tensor(scope.get_current_value(variable), variable.dtype)


def _refuse(variable: Any, what: str) -> None:
    if what == "a use":
        raise ArgumentError(
            "With virtual workers, a step cannot read weights after optimizer.apply(): they change when all "
            "shares are done.",
            received=f"a use of {variable.path} after apply()",
            fix="Read it before, or in a callback; or train without virtual_workers.",
        )
    raise ArgumentError(
        "With virtual workers, only the model's optimizer may change its weights, once in a step.",
        received=f"a step that changes {variable.path} by itself",
        fix="Train without virtual_workers.",
    )


# Operations whose results no seed of Keras decides; TensorFlow's own names.
_RANDOM = {
    "RandomUniform", "RandomUniformInt", "RandomStandardNormal", "TruncatedNormal", "RandomShuffle",
    "RandomGamma", "RandomPoissonV2", "Multinomial", "ParameterizedTruncatedNormal", "StatefulUniform",
    "StatefulStandardNormalV2", "StatefulUniformFullInt", "StatefulUniformInt", "StatefulRandomBinomial",
    "StatefulTruncatedNormal",
}  # fmt: skip
_WRITES = ("Assign", "ResourceApply", "ResourceSparseApply", "ResourceScatter", "ResourceStridedSliceAssign")


def check_operations(graph: tf.Graph) -> None:
    """Refuse operations in the graph of a share that would break the promise.

    Raises:
        ArgumentError: The step draws random numbers that do not depend on Keras's seeds, or it changes
            variables of TensorFlow.
    """
    definition = graph.as_graph_def()
    functions = (function.node_def for function in definition.library.function)
    for node in (node for nodes in (definition.node, *functions) for node in nodes):
        if node.op in _RANDOM:
            raise ArgumentError(
                "With virtual workers, random numbers must depend on the seed, the step and the virtual worker.",
                received=f"the operation {node.op} ({node.name})",
                fix="Use keras.random with a keras.random.SeedGenerator instead of tf.random.",
            )
        if node.op.startswith(_WRITES):
            raise ArgumentError(
                "With virtual workers, a step may change only variables of Keras.",
                received=f"the operation {node.op} ({node.name})",
                fix="Make the variable with self.add_weight(trainable=False) or self.add_variable().",
            )


class Stages:
    """The step of a virtual worker as functions: one for each part between two exchanges.

    Args:
        inputs: The inputs of the step, tensors of its graph.
        step: The step, traced in a graph.
        results: The tensors that are wanted.
        function: The function that was traced.
    """

    def __init__(self, inputs: Sequence[tf.Tensor], step: ShareStep, results: Sequence[tf.Tensor], function: Any):
        self.exchanges = step.exchanges
        self._inputs = list(inputs)
        self._results = list(results)
        cut = _Cut(function.graph, inputs, step.exchanges)
        self._feeds, self._fetches, self._functions = [], [], []
        for number in range(len(self.exchanges) + 1):
            feeds, fetches = cut.stage(number, results)
            self._feeds.append(feeds)
            self._fetches.append(fetches)
            self._functions.append(_apart(function.prune(feeds, fetches), feeds))

    def begin(self, inputs: Sequence[tf.Tensor]) -> dict[Any, tf.Tensor]:
        """The known tensors of a virtual worker before its first stage."""
        return {key.ref(): value for key, value in zip(self._inputs, inputs, strict=True)}

    def run(self, number: int, known: dict[Any, tf.Tensor]) -> None:
        """Run a stage: add its results to the known tensors."""
        found = self._functions[number](*[known[tensor.ref()] for tensor in self._feeds[number]])
        known.update({t.ref(): value for t, value in zip(self._fetches[number], found, strict=True)})

    def results(self, known: dict[Any, tf.Tensor]) -> list[tf.Tensor]:
        """The results, after the last stage."""
        return [known[tensor.ref()] for tensor in self._results]


class _Cut:
    """Which operations belong to which stage, and what must pass from one stage to another."""

    def __init__(self, graph: tf.Graph, inputs: Sequence[tf.Tensor], exchanges: Sequence[Exchange]) -> None:
        self._exchanges = exchanges
        given = {tensor.ref(): 0 for tensor in inputs}
        for number, exchange in enumerate(exchanges):
            given |= {tensor.ref(): number + 1 for tensor in exchange.sums}
        self._given = given
        starts = {tensor.deref().op.name: stage for tensor, stage in given.items()}
        # Constants, and variables that are only read, are in every stage.
        self._stage: dict[str, int | None] = {}
        self._passed: list[set[Any]] = [set() for _ in range(len(exchanges) + 1)]
        for operation in graph.get_operations():
            before = [self._stage.get(t.op.name) for t in operation.inputs]
            before += [self._stage.get(control.name) for control in operation.control_inputs]
            known = [stage for stage in before if stage is not None]
            stage = starts.get(operation.name, max(known) if known else None)
            self._stage[operation.name] = stage
            for tensor in operation.inputs:
                own = self._stage.get(tensor.op.name)
                if stage is not None and own is not None and own < stage and tensor.ref() not in given:
                    # TensorFlow replaces whole operations, so that all outputs must pass.
                    self._passed[stage] |= {output.ref() for output in tensor.op.outputs}

    def stage(self, number: int, results: Sequence[tf.Tensor]) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """The inputs and the outputs of a stage."""
        feeds = [ref for ref, stage in self._given.items() if stage <= number]
        feeds += self._sorted(self._passed[number])
        needed = {tensor.ref(): None for tensor in results}
        needed |= {tensor.ref(): None for exchange in self._exchanges for tensor in exchange.values}
        for later in self._passed[number + 1 :]:
            needed |= {ref: None for ref in self._sorted(later)}
        own = [ref for ref in needed if (self._stage[ref.deref().op.name] or 0) == number]
        fetches = [ref.deref() for ref in own if ref not in self._given]
        reached = _reached(fetches, set(feeds))
        return [ref.deref() for ref in feeds if ref.deref().op.name in reached], fetches

    def _sorted(self, refs: set[Any]) -> list[Any]:
        return sorted(refs, key=lambda ref: ref.deref().name)


def _reached(tensors: Sequence[tf.Tensor], ends: set[Any]) -> set[str]:
    """The names of the operations of those tensors among ``ends`` that others are computed from."""
    reached, seen, left = set[str](), set[str](), list(tensors)
    while left:
        tensor = left.pop()
        if tensor.ref() in ends:
            reached.add(tensor.op.name)
        elif tensor.op.name not in seen:
            seen.add(tensor.op.name)
            left += [t for operation in (tensor.op, *tensor.op.control_inputs) for t in operation.inputs]
    return reached


def _apart(pruned: Any, feeds: Sequence[tf.Tensor]) -> Any:
    """A function that TensorFlow does not merge with the graph around it, so that its kernels stay the same."""

    def call(*arguments: tf.Tensor) -> Any:
        return pruned(*arguments)

    signature = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in feeds]
    with contextlib.suppress(AttributeError):
        call.__name__ = "virtual_worker"
    return tf.function(
        call, input_signature=signature, autograph=False, experimental_attributes={"_noinline": True}
    )
