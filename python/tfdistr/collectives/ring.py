"""The ring: TensorFlow's collectives over gRPC on CPUs, or NCCL if each worker has a GPU."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.collectives.interface import WAITING_NOTE, Collectives, Traffic, add_pairs, move_axis
from tfdistr.collectives.sum_tree import SumTree
from tfdistr.rendezvous.lifelines import Lifelines
from tfdistr.rendezvous.peer_failure import report_end
from tfdistr.utils.warn import NOTE

log = logging.getLogger("tfdistr")

# The key for the message of a failed worker.
_FAILED = "tfdistr/failed"
# The key for the number of collectives that a worker without progress has begun.
_PLACE = "tfdistr/place"
# Seconds in which the peers, which wait just as long, should set their numbers.
_POSITION_TIMEOUT = 5.0
# Sums in order of at most this many bytes take one collective instead of two, which send fewer bytes.
_SMALL = 1 << 14
# TensorFlow counts the keys of its own device groups from 1 on.
_GROUP_KEY = 1 << 20


class TensorFlowCollectives(Collectives):
    """TensorFlow's collectives: the ring over gRPC on CPUs, or NCCL if each worker has a GPU.

    The workers distinguish their collectives by keys. TensorFlow assigns the keys while a function is
    called, which fails inside a loop (``steps_per_execution`` makes one). Here a variable counts
    the collectives as they run, in the order of the program, so that the keys agree on all workers.

    Args:
        communication: "auto", "ring" or "nccl".
        timeout: Seconds that a collective of tensors may take; None for no limit.
    """

    def __init__(
        self,
        jobs: dict[str, int],
        index: int,
        device: str,
        communication: str,
        bytes_per_pack: int,
        timeout: float | None = None,
    ) -> None:
        super().__init__(sum(jobs.values()), index, bytes_per_pack)
        self._jobs = jobs
        self._hint = communication
        self._timeout = timeout or 0.0  # no limit, for TensorFlow
        self._exchanges = 0
        with tf.device("CPU:0"):
            self._traffic = tf.Variable([0, 0], dtype=tf.int64, trainable=False, name="traffic")
        self._clock = _Clock()
        self._adds_in_order = "GPU" not in device
        # NCCL operations must start in the same order on all workers; a shared resource orders them.
        self._order = [tf.Variable(0.0, trainable=False).handle] if "GPU" in device else []
        self._reduce = self._operation(
            tf.raw_ops.CollectiveReduceV2, merge_op="Add", final_op="Id", max_subdivs_per_device=-1
        )
        self._gather_equal = self._operation(tf.raw_ops.CollectiveGatherV2)
        self._all_to_all = self._operation(tf.raw_ops.CollectiveAllToAllV2)

    def use(self, communication: str) -> None:
        """Use "ring" or "nccl" in all collectives, of which none has run yet."""
        self._hint = communication

    def watch(self, lifelines: Lifelines, tasks: Mapping[str, str]) -> None:
        """Fail as soon as a peer exits without a goodbye. The connections now belong to these collectives."""
        self._lifelines = lifelines
        names = list(tasks)

        def on_failure(message: str) -> None:
            tf_internals.abort_collectives(message)
            if self.index == 0:  # for workers that wait for a text or at a barrier
                self.report_failure(message)

        lifelines.watch(on_failure, lambda name: report_end(names.index(name), tasks[name]))

    @property
    def traffic(self) -> Traffic:
        return Traffic(*map(int, self._traffic.numpy()))

    @property
    def seconds(self) -> float | None:
        """Seconds with a collective under way, while this worker may compute; None if GPUs exchange."""
        return None if self._order else self._clock.seconds

    def all_gather(self, tensor: tf.Tensor, axis: int) -> tf.Tensor:
        tensor = tf.convert_to_tensor(tensor)
        rows = tf.shape(tensor)[axis]
        counts = self._gather(rows[tf.newaxis])
        # The collective needs equal shapes: a shorter tensor is padded, and cut again afterwards.
        first = move_axis(tensor, axis)
        filled = tf.pad(first, [[0, tf.reduce_max(counts) - rows], *([[0, 0]] * (tensor.shape.rank - 1))])
        parts = tf.split(self._gather(filled), self.num_workers)
        gathered = tf.concat([part[: counts[i]] for i, part in enumerate(parts)], 0)
        return move_axis(gathered, axis)

    def exchange(self, text: str) -> list[str]:
        name = self._publish(text)
        peers = range(self.num_workers)
        return [text if peer == self.index else self._text_of(peer, name) for peer in peers]

    def text_of_chief(self, text: str) -> str:
        if self.index == 0:
            self._publish(text)
            return text
        self._exchanges += 1
        return self._text_of(0, f"tfdistr/exchange/{self._exchanges}")

    def barrier(self, name: str, timeout: float) -> None:
        tf_internals.wait_at_barrier(name, timeout)

    def report_failure(self, message: str) -> None:
        # The report does not interrupt a worker that waits for a text, so the message is also a text.
        with contextlib.suppress(tf.errors.OpError):
            tf_internals.set_key(_FAILED, message)
        with contextlib.suppress(tf.errors.OpError):
            tf_internals.report_error(message)
        self.pass_on(message)
        self._say_goodbye()

    def behind(self) -> list[int]:
        self.moved_on()
        end = time.monotonic() + _POSITION_TIMEOUT
        places: dict[int, int] = {self.index: self.traffic.collectives + self._exchanges}
        tf_internals.set_key(f"{_PLACE}/{self.index}", str(places[self.index]))
        for peer in set(range(self.num_workers)) - {self.index}:
            with contextlib.suppress(tf.errors.OpError):  # it is unreachable
                left = max(0.05, end - time.monotonic())
                places[peer] = int(tf_internals.get_key(f"{_PLACE}/{peer}", left))
        first = min(places.values())
        return [worker for worker in range(self.num_workers) if places.get(worker, first) == first]

    def moved_on(self) -> None:
        with contextlib.suppress(tf.errors.OpError):
            tf_internals.delete_key(f"{_PLACE}/{self.index}")

    def abandon(self) -> None:
        self._say_goodbye()

    def close(self) -> bool:
        self._say_goodbye()  # the coordination service ends with the process
        return True

    def _say_goodbye(self) -> None:
        if self._lifelines is not None:
            self._lifelines.say_goodbye()

    def _publish(self, text: str) -> str:
        self._exchanges += 1
        name = f"tfdistr/exchange/{self._exchanges}"
        tf_internals.set_key(f"{name}/{self.index}", text)
        return name

    def _text_of(self, worker: int, name: str) -> str:
        began = time.monotonic()
        to_be_said = WAITING_NOTE
        while True:
            with contextlib.suppress(tf.errors.DeadlineExceededError):
                return tf_internals.get_key(f"{name}/{worker}", 0.5)
            failed = tf_internals.failed_tasks(self._jobs)
            if failed:
                with contextlib.suppress(tf.errors.OpError):
                    failed = [tf_internals.get_key(_FAILED, 0.5)]
                raise tf.errors.AbortedError(None, None, failed[0])
            waited = time.monotonic() - began
            if waited > to_be_said:
                text = "Waiting for worker %d for %.0f s: it has not joined."
                log.warning(text, worker, waited, extra=NOTE)
                to_be_said *= 2

    def sum(self, tensor: tf.Tensor) -> tf.Tensor:
        return self._call(self._reduce, tensor)

    def _sum_nodes(self, tree: SumTree, values: tf.Tensor) -> tf.Tensor:
        nodes = tree.all_nodes
        rows, size, workers = max(map(len, nodes)), tf.shape(values)[1], self.num_workers
        bytes_sent = (values.shape[1] or 0) * values.dtype.size
        # A worker with fewer nodes sends zeros: the collectives need equal shapes.
        values = tf.pad(values, [[0, rows - len(nodes[self.index])], [0, 0]])
        if bytes_sent * rows <= _SMALL and values.shape[1] is not None:
            each = _carried(self._gather(_carried(values)), values.dtype)
            return self._total(tree, tf.reshape(each, [workers, rows, size]))
        # Each worker sums its part of the numbers, and then all workers get the sums of all parts.
        part = -(-size // workers)
        values = tf.reshape(tf.pad(values, [[0, 0], [0, part * workers - size]]), [rows, workers, part])
        given = self._call(self._all_to_all, _carried(tf.transpose(values, [1, 0, 2])))
        each = _carried(tf.ensure_shape(given, [workers, rows, None]), values.dtype)
        sums = self._gather(_carried(self._total(tree, each)))
        return tf.reshape(_carried(sums, values.dtype), [-1])[:size]

    def _total(self, tree: SumTree, values: tf.Tensor) -> tf.Tensor:
        """Sum the nodes of all workers: ``values[worker][row]``."""
        places = {node: (w, row) for w, nodes in enumerate(tree.all_nodes) for row, node in enumerate(nodes)}
        [total] = tree.total(lambda node: [values[places[node]]], add_pairs, known=set(places))
        return total

    def _gather(self, tensor: tf.Tensor) -> tf.Tensor:
        gathered = self._call(self._gather_equal, tensor)
        return tf.ensure_shape(gathered, [None, *tensor.shape[1:]])

    def _gather_flat(self, tensor: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        # The collective needs equal shapes, and at least one number.
        longest = tf.maximum(tf.reduce_max(lengths), 1)
        filled = tf.pad(tensor, [[0, longest - tf.size(tensor)]])
        parts = tf.split(self._gather(filled), self.num_workers)
        return tf.concat([part[: lengths[i]] for i, part in enumerate(parts)], 0)

    def _operation(self, operation: Callable[..., tf.Tensor], **attributes: object) -> object:
        """Return a `tf.function` of a tensor and a key, so that all tensors of one shape share a trace.

        In a graph it also returns the times when the collective began and ended, except for GPUs.
        """

        def collective(tensor: tf.Tensor, key: tf.Tensor) -> list[tf.Tensor]:
            timed = not (tf.executing_eagerly() or self._order)
            began = [_time_after(tensor, key)] if timed else []
            with tf.control_dependencies(began):
                result = operation(
                    input=tensor,
                    group_size=self.num_workers,
                    group_key=_GROUP_KEY,
                    instance_key=key,
                    ordering_token=self._order,
                    communication_hint=self._hint,
                    timeout_seconds=self._timeout,
                    **attributes,
                )
            if not timed:
                return [result]
            ended = _time_after(result)
            with tf.control_dependencies([ended]):  # nothing that needs the result comes before the time
                return [tf.identity(result), *began, ended]

        return tf.function(collective, autograph=False, experimental_attributes={"_noinline": True})

    def _call(self, collective: object, tensor: tf.Tensor) -> tf.Tensor:
        # Count only when the tensor is ready, so that the count shows the progress of this worker.
        with tf.control_dependencies([tensor]), tf.device("CPU:0"):
            sent = tf.size(tensor, tf.int64) * tensor.dtype.size
            key = tf.cast(self._traffic.assign_add(tf.stack([1, sent]), read_value=True)[0], tf.int32)
        began = time.monotonic()
        result, *times = _outside_of_loops(collective, tensor, key)
        if times:
            self._clock.count(*times)
        elif tf.executing_eagerly():
            self._clock.eager_seconds += time.monotonic() - began
        return result


class _Clock:
    """The seconds with a collective under way."""

    def __init__(self) -> None:
        with tf.device("CPU:0"):  # the seconds in graphs, and when the last of these collectives ended
            self._of_graphs = tf.Variable([0.0, 0.0], dtype=tf.float64, trainable=False, name="clock")
        self.eager_seconds = 0.0

    @property
    def seconds(self) -> float:
        return float(self._of_graphs.numpy()[0]) + self.eager_seconds

    def count(self, began: tf.Tensor, ended: tf.Tensor) -> None:
        """Count the seconds of a collective that no earlier collective has counted: packs may overlap."""
        with tf.device("CPU:0"):
            seconds, last = tf.unstack(self._of_graphs.read_value())
            seconds += tf.maximum(ended - tf.maximum(began, last), 0.0)
            self._of_graphs.assign(tf.stack([seconds, tf.maximum(ended, last)]))


def _time_after(*tensors: tf.Tensor) -> tf.Tensor:
    with tf.control_dependencies(tensors), tf.device("CPU:0"):
        return tf.timestamp()


def _carried(tensor: tf.Tensor, dtype: tf.DType = tf.float16) -> tf.Tensor:
    """Reinterpret 16-bit numbers as a type that TensorFlow's collectives carry, or convert them back."""
    half = tf.bfloat16 in (tensor.dtype, dtype) and tensor.dtype.size == 2
    return tf.bitcast(tensor, dtype) if half else tensor


def _outside_of_loops(collective: Any, tensor: tf.Tensor, key: tf.Tensor) -> list[tf.Tensor]:
    """Call ``collective(tensor, key)`` so that TensorFlow identifies it only by its key.

    ``collective`` is a `tf.function`. In a loop TensorFlow adds the iteration to the key. Each worker chooses
    how many steps a call of its training loop makes. So workers in different iterations would wait for each
    other forever.
    """
    if tf.executing_eagerly():
        results: list[tf.Tensor] = collective.python_function(tensor, key)
        return results
    traced = collective.get_concrete_function(tensor, key)
    traced.add_to_graph(tf.compat.v1.get_default_graph())
    arguments = [tensor, key, *traced.captured_inputs]
    # The usual call is stateful: it would wait for the previous collective.
    types = [output.dtype for output in traced.outputs]
    results = tf.raw_ops.PartitionedCall(args=arguments, Tout=types, f=traced)
    return list(map(tf.ensure_shape, results, traced.output_shapes))
