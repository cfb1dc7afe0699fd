"""The step of a virtual worker as TensorFlow functions, cut where shares exchange values.

The step is traced once, whatever the number of virtual workers. Some models exchange values between replicas
before the optimizer runs: synchronized normalization, and losses that divide by a number which all shares
decide. The step is cut there into stages. A stage returns the values to exchange; the next gets their sums.
It is also cut where it reads weights that an optimizer has changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfdistr.strategies.virtual.share import ShareExchange, ShareStep


class Stages:
    """The step of a virtual worker as functions: one for each part between two exchanges."""

    def __init__(
        self, inputs: Sequence[tf.Tensor], step: ShareStep, results: Sequence[tf.Tensor], function: Any
    ) -> None:
        self.exchanges = step.exchanges
        self._inputs = list(inputs)
        self._results = list(results)
        cut = _Cut(function.graph, inputs, step.exchanges)
        self._feeds: list[list[tf.Tensor]] = []
        self._fetches: list[list[tf.Tensor]] = []
        self._functions: list[Any] = []
        for number in range(len(self.exchanges) + 1):
            feeds, fetches = cut.stage(number, results)
            self._feeds.append(feeds)
            self._fetches.append(fetches)
            self._functions.append(apart(function.prune(feeds, fetches), feeds))

    def begin(self, inputs: Sequence[tf.Tensor]) -> dict[Any, tf.Tensor]:
        """Return the known tensors of a virtual worker before its first stage."""
        return {key.ref(): value for key, value in zip(self._inputs, inputs, strict=True)}

    def run(self, number: int, known: dict[Any, tf.Tensor]) -> None:
        """Run a stage: add its results to the known tensors."""
        found = self._functions[number](*[known[tensor.ref()] for tensor in self._feeds[number]])
        known.update({t.ref(): value for t, value in zip(self._fetches[number], found, strict=True)})

    def results(self, known: dict[object, tf.Tensor]) -> list[tf.Tensor]:
        """Return the results, after the last stage."""
        return [known[tensor.ref()] for tensor in self._results]


class _Cut:
    """The operations of each stage, and the tensors that must pass from one stage to another."""

    def __init__(
        self, graph: tf.Graph, inputs: Sequence[tf.Tensor], exchanges: Sequence[ShareExchange]
    ) -> None:
        self._exchanges = exchanges
        given = {tensor.ref(): 0 for tensor in inputs}
        for number, exchange in enumerate(exchanges):
            given |= {tensor.ref(): number + 1 for tensor in exchange.received}
        self._stage_of = given
        starts = {tensor.deref().op.name: stage for tensor, stage in given.items()}
        updated = {exchange.sums[0].op.name for exchange in exchanges if exchange.updates}
        # Constants are in every stage, and so are variables, if no optimizer changes them between two stages.
        earliest = 0 if updated else None
        self._stage: dict[str, int | None] = {}
        self._passed: list[set[object]] = [set() for _ in range(len(exchanges) + 1)]
        for operation in graph.get_operations():
            before = [self._stage.get(t.op.name) for t in operation.inputs]
            before += [self._stage.get(control.name) for control in operation.control_inputs]
            if any(tensor.dtype == tf.resource for tensor in operation.inputs):
                before.append(earliest)
            known = [stage for stage in before if stage is not None]
            stage = starts.get(operation.name, max(known) if known else None)
            earliest = stage if operation.name in updated else earliest
            self._stage[operation.name] = stage
            for tensor in operation.inputs:
                own = self._stage.get(tensor.op.name)
                if stage is not None and own is not None and own < stage and tensor.ref() not in given:
                    # TensorFlow replaces whole operations, so all outputs must pass.
                    self._passed[stage] |= {output.ref() for output in tensor.op.outputs}

    def stage(self, number: int, results: Sequence[tf.Tensor]) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """Return the inputs and the outputs of a stage."""
        feeds = [ref for ref, stage in self._stage_of.items() if stage <= number]
        feeds += self._sorted(self._passed[number])
        needed = {tensor.ref(): None for tensor in results}
        needed |= {tensor.ref(): None for exchange in self._exchanges for tensor in exchange.sent}
        for later in self._passed[number + 1 :]:
            needed |= dict.fromkeys(self._sorted(later))
        own = [ref for ref in needed if (self._stage[ref.deref().op.name] or 0) == number]
        fetches = [ref.deref() for ref in own if ref not in self._stage_of]
        reached = _reached(fetches, set(feeds))
        return [ref.deref() for ref in feeds if ref.deref().op.name in reached], fetches

    def _sorted(self, refs: set[Any]) -> list[object]:
        return sorted(refs, key=lambda ref: ref.deref().name)


def _reached(tensors: Sequence[tf.Tensor], ends: set[object]) -> set[str]:
    """Return the names of the operations of those tensors among ``ends`` that others are computed from."""
    reached, seen, left = set[str](), set[str](), list(tensors)
    while left:
        tensor = left.pop()
        if tensor.ref() in ends:
            reached.add(tensor.op.name)
        elif tensor.op.name not in seen:
            seen.add(tensor.op.name)
            left += [t for operation in (tensor.op, *tensor.op.control_inputs) for t in operation.inputs]
    return reached


def apart(function: Any, feeds: Sequence[tf.Tensor] | None = None) -> Any:
    """Compile a function that TensorFlow does not merge with the graph around it.

    So the graph of a number is the same on any number of workers, and so are its kernels.
    """

    def call(*arguments: tf.Tensor) -> Any:
        return function(*arguments)

    signature = None if feeds is None else [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in feeds]
    return tf.function(
        call, input_signature=signature, autograph=False, experimental_attributes={"_noinline": True}
    )
