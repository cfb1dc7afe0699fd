"""The MPI collectives, for ranks with one CPU replica each."""

from __future__ import annotations

import functools
import os
import socket
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf
from mpi4py import MPI

from tfdistr.collectives.interface import Collectives, Traffic
from tfdistr.collectives.mpi.message_sums import OF_HALVES, PLAIN, Addition, Array, InOrderAddition
from tfdistr.collectives.mpi.two_levels import sums_of
from tfdistr.collectives.sum_tree import SumTree
from tfdistr.errors import PEER_MARK
from tfdistr.rendezvous.lifelines import Lifelines
from tfdistr.rendezvous.peer_failure import report_end, report_silence
from tfdistr.utils.processes import process_state

T = TypeVar("T")

# Tensors of at least this many bytes are not copied into a pack with others.
_LARGE = 1 << 18
# A rank that waits for longer than _SPIN seconds yields its core: between two tests it sleeps for _NAP
# seconds, or for a part of its waiting time, at most _LONG_NAP seconds. MPI sends messages in tests only.
_SPIN, _NAP, _PART, _LONG_NAP = 0.01, 0.0002, 1 / 500, 0.002
# Poll intervals, in seconds, for the message of a failed rank and for stopped ranks.
_LISTEN, _POLL_INTERVAL = 0.05, 1.0
_NO_LIMIT = float("inf")
# Seconds in which the ranks, which have all left the last barrier, free their memory together.
_CLOSING = 5.0
# The ranks compare the seconds of so many collectives at once.
_COMPARED = 4096
# MPI has no sums of these types.
_HALF = (tf.float16, tf.bfloat16)
_WIDER = {tf.bool: tf.int32}


class MpiCollectives(Collectives):
    """Collectives through mpi4py. Tensors leave the graph as NumPy arrays that share the tensors' memory.

    Each collective is an operation with side effects. So TensorFlow keeps the order of the program, which is
    the same on all ranks. During a collective, a rank polls for messages of failed ranks.

    Args:
        heartbeat_timeout: Seconds that a rank of this machine may be stopped while this rank waits.
        timeout: Seconds that a collective of tensors may take; None for no limit.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        bytes_per_pack: int,
        heartbeat_timeout: float = 30.0,
        *,
        timeout: float | None = None,
    ) -> None:
        super().__init__(comm.Get_size(), comm.Get_rank(), bytes_per_pack)
        self._comm = comm.Dup()
        self._barriers = comm.Dup()
        self._failures = comm.Dup()
        self._failed = False
        self._end: Callable[[], object] = MPI.Finalize
        self._heard: str | None = None
        self._waiting = False
        self._timeout = _NO_LIMIT if timeout is None else timeout
        self._meter = _Meter(self._least)
        self._sums = sums_of(self._comm, self._until)
        self._neighbours = _Neighbours(self._comm, heartbeat_timeout)

    def watch(
        self, lifelines: Lifelines, tasks: Mapping[str, str], end: Callable[[], object], *, heartbeats: bool
    ) -> None:
        """Fail as soon as the process of a peer exits without a goodbye; no MPI launcher watches it."""
        self._lifelines, self._end = lifelines, end
        names = list(tasks)

        def on_failure(message: str) -> None:
            self._heard = message

        def of_loss(name: str) -> str:
            return report_end(names.index(name), tasks[name])

        def of_silence(name: str) -> str:
            return report_silence(names.index(name), tasks[name])

        limit = self._neighbours.patience if heartbeats else None
        lifelines.watch(on_failure, of_loss, of_silence, limit)

    def sum(self, tensor: tf.Tensor) -> tf.Tensor:
        kind = _WIDER.get(tensor.dtype, tensor.dtype)
        add = functools.partial(self._sum, addition=OF_HALVES if kind in _HALF else PLAIN)
        total = tf.numpy_function(self._meter.counted(add), [_owned(tf.cast(tensor, kind))], kind)
        return tf.cast(tf.ensure_shape(total, tensor.shape), tensor.dtype)

    def _sum_pack(self, tensors: Sequence[tf.Tensor], dtype: tf.DType | None) -> Sequence[tf.Tensor]:
        kind = tensors[0].dtype
        if dtype not in (None, kind) or kind in _HALF or kind in _WIDER:
            return super()._sum_pack(tensors, dtype)

        def add(*arrays: Array) -> list[Array]:
            # Large arrays are sent in place, because copying them into one array takes longer.
            totals = [self._sum(array) if array.nbytes >= _LARGE else array for array in arrays]
            small = [i for i, array in enumerate(arrays) if array.nbytes < _LARGE]
            if small:
                total = self._sum(np.concatenate([arrays[i] for i in small]))
                parts = np.split(total, np.cumsum([arrays[i].size for i in small])[:-1])
                for i, part in zip(small, parts, strict=True):
                    totals[i] = part
            return totals

        sums: Any = tf.numpy_function(
            self._meter.counted(add), list(map(_owned, tensors)), [kind] * len(tensors)
        )
        return [sums] if len(tensors) == 1 else list(sums)

    def _sum_nodes(self, tree: SumTree, values: tf.Tensor) -> tf.Tensor:
        def add(rows: Array) -> Array:
            return self._sums.add(rows, InOrderAddition(tree))

        own = tf.reshape(_owned(values), tf.shape(values))
        total = tf.numpy_function(self._meter.counted(add), [own], values.dtype)
        return tf.ensure_shape(total, values.shape[1:])

    @property
    def traffic(self) -> Traffic:
        return self._meter.traffic

    @property
    def seconds(self) -> float:
        return self._meter.seconds

    def begin_waits(self) -> None:
        self._meter.begin_waits()

    def waited(self) -> float:
        return self._meter.waited()

    @property
    def share_a_host(self) -> bool:
        return self._neighbours.number == self.num_workers - 1

    def all_gather(self, tensor: tf.Tensor, axis: int) -> tf.Tensor:
        tensor = tf.convert_to_tensor(tensor)

        def gather(array: Array) -> Array:
            self._finish(self._comm.Ibarrier())  # to detect a rank that has failed before
            return np.concatenate(self._comm.allgather(array), axis)

        gathered = tf.numpy_function(self._meter.counted(gather), [tensor], tensor.dtype)
        sides = tensor.shape.as_list()
        sides[axis] = None
        return tf.ensure_shape(gathered, sides)

    def _gather_flat(self, tensor: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        def gather(array: Array, lengths: Array) -> Array:
            given = np.empty(int(lengths.sum()), array.dtype)

            def exchange(own: Array) -> Array:
                self._finish(self._comm.Iallgatherv(own, [given, lengths]))
                return given

            return self._meter.counted(exchange)(array)

        return tf.ensure_shape(tf.numpy_function(gather, [tensor, lengths], tensor.dtype), [None])

    def broadcast(self, tensor: tf.Tensor) -> tf.Tensor:
        def send(array: Array) -> Array:
            self._finish(self._comm.Ibarrier())
            return np.asarray(self._comm.bcast(array))

        return tf.ensure_shape(
            tf.numpy_function(self._meter.counted(send), [tensor], tensor.dtype), tensor.shape
        )

    def exchange(self, text: str) -> list[str]:
        self._finish(self._comm.Ibarrier(), _NO_LIMIT)
        return list(self._comm.allgather(text))

    def text_of_chief(self, text: str) -> str:
        self._finish(self._comm.Ibarrier(), _NO_LIMIT)
        return str(self._comm.bcast(text))

    def barrier(self, name: str, timeout: float) -> None:
        # Uses messages, because MPI's barriers have no names: an abandoned barrier would match the next one.
        tag, end = zlib.crc32(name.encode()) & 0x7FFF, time.monotonic() + timeout
        first = range(1, self.num_workers) if self.index == 0 else [0]
        if self.index != 0:
            self._barriers.Send(bytearray(1), 0, tag)
        for peer in first:
            request = self._barriers.Irecv(bytearray(1), peer, tag)
            try:
                self._finish(request, end - time.monotonic())
            except tf.errors.DeadlineExceededError:
                request.Cancel()
                raise
        if self.index == 0:
            for peer in first:
                self._barriers.Send(bytearray(1), peer, tag)

    def report_failure(self, message: str) -> None:
        if self._lifelines is not None:
            self._lifelines.tell(message)
            self._lifelines.say_goodbye()
            return
        self._failed = True
        peers = (rank for rank in range(self.num_workers) if rank != self.index)
        sent = [self._failures.isend(message, rank) for rank in peers]
        end = time.monotonic() + 1.0
        while not MPI.Request.Testall(sent) and time.monotonic() < end:
            os.sched_yield()

    def behind(self) -> list[int]:
        return [] if self._waiting else [self.index]

    def abandon(self) -> None:
        if self._lifelines is not None:
            self._lifelines.say_goodbye()
        elif self._failed:
            time.sleep(1.0)  # the peers can print their errors
            MPI.COMM_WORLD.Abort(1)  # otherwise MPI would wait for them forever at exit

    def close(self) -> bool:
        together = self._all_close()
        if together:
            self._sums.free()
        if self._lifelines is not None:
            self._lifelines.say_goodbye()
            if together:
                self._end()
        return together

    def _all_close(self) -> bool:
        """Return whether all ranks close. If one has failed, freeing would wait for it for ever."""
        request, end = self._barriers.Ibarrier(), time.monotonic() + _CLOSING
        while not request.Test():
            if time.monotonic() > end:
                return False
            time.sleep(0.001)
        return True

    def _least(self, numbers: Array) -> Array:
        least = numbers.copy()
        self._finish(self._comm.Iallreduce(MPI.IN_PLACE, least, MPI.MIN))
        return least

    def _sum(self, array: Array, addition: Addition = PLAIN) -> Array:
        """Replace ``array``, of one dimension, by the sum of the ranks' arrays."""
        return self._sums.add(array[np.newaxis], addition)

    def _finish(self, request: MPI.Request, timeout: float | None = None) -> None:
        self._until(request.Test, timeout)

    def _until(self, done: Callable[[], bool], timeout: float | None = None) -> None:
        timeout = self._timeout if timeout is None else timeout
        end = time.monotonic() + timeout
        self._waiting = True
        try:
            self._wait(done, end, timeout)
        finally:
            self._waiting = False

    def _wait(self, done: Callable[[], bool], end: float, timeout: float) -> None:
        began = listened = time.monotonic()
        while not done():
            now = time.monotonic()
            waited = now - began
            if waited < _SPIN:
                os.sched_yield()  # ranks may share a core
            else:
                time.sleep(min(max(_NAP, waited * _PART), _LONG_NAP))
            if now - listened > _LISTEN:
                listened = now
                if self._heard is not None:
                    raise tf.errors.AbortedError(None, None, self._heard)
                if self._lifelines is None and self._failures.Iprobe():
                    raise tf.errors.AbortedError(None, None, self._failures.recv())
                if (stopped := self._neighbours.stopped(now)) is not None:
                    self._failed = True  # a stopped process cannot report it
                    raise tf.errors.AbortedError(None, None, stopped)
                if now > end:
                    text = f"Not all ranks joined within {timeout:g} s."
                    raise tf.errors.DeadlineExceededError(None, None, text)


class _Meter:
    """The number, the bytes and the seconds of collectives, and the waits for peers in them.

    Args:
        least: Returns the smallest of the ranks' numbers, place by place.
    """

    def __init__(self, least: Callable[[Array], Array]) -> None:
        self._least = least
        self.traffic, self.seconds = Traffic(0, 0), 0.0
        # The seconds of the last collectives, of which `_recorded` are not compared yet. The first `_ignored`
        # of them do not count as waits.
        self._last_seconds = np.zeros(_COMPARED)
        self._recorded, self._ignored, self._waited = 0, 0, 0.0

    def counted(self, collective: Callable[..., T]) -> Callable[..., T]:
        """Count the calls, the bytes and the seconds of a collective, which takes arrays."""

        def counted(*arrays: Array) -> T:
            began = time.monotonic()
            sent = sum(array.nbytes for array in arrays)
            self.traffic = Traffic(self.traffic.collectives + 1, self.traffic.bytes + sent)
            result = collective(*arrays)
            seconds = time.monotonic() - began
            self.seconds += seconds
            self._last_seconds[self._recorded] = seconds
            self._recorded += 1
            if self._recorded == _COMPARED:  # after the same collective on all ranks
                self._compare()
            return result

        return counted

    def begin_waits(self) -> None:
        self._ignored, self._waited = self._recorded, 0.0

    def waited(self) -> float:
        self._compare()
        return self._waited

    def _compare(self) -> None:
        """Add up the waits in the collectives that are not compared yet. All ranks call this.

        No rank leaves a collective before the last one has come. So the last one is the rank that spends the
        least time in it, and this time is the exchange itself.
        """
        own = self._last_seconds[: self._recorded]
        self._waited += float(np.sum((own - self._least(own))[self._ignored :]))
        self._recorded = self._ignored = 0


class _Neighbours:
    """The other ranks of this host: nobody else reports one that is stopped."""

    def __init__(self, comm: MPI.Intracomm, patience: float) -> None:
        own, places = comm.Get_rank(), comm.allgather((socket.gethostname(), os.getpid()))
        self._host, self.patience = places[own][0], patience
        self._pids = {r: pid for r, (host, pid) in enumerate(places) if r != own and host == self._host}
        self._since: dict[int, float] = {}
        self._looked = 0.0

    @property
    def number(self) -> int:
        return len(self._pids)

    def stopped(self, now: float) -> str | None:
        if now - self._looked <= _POLL_INTERVAL:
            return None
        self._looked = now
        for rank, pid in self._pids.items():
            if process_state(pid) not in ("T", "t"):
                self._since.pop(rank, None)
            elif now - self._since.setdefault(rank, now) > self.patience:
                what = f"its process {pid} on {self._host} was stopped (SIGSTOP, or a debugger) for "
                return f"{PEER_MARK} worker {rank}: {what}{self.patience:g} s, and the others lost it"
        return None


def _owned(tensor: tf.Tensor) -> tf.Tensor:
    """Return the numbers of ``tensor`` in one dimension, in memory that nobody else needs.

    Sums in place of the gradients move the least memory. But two variables may share a gradient, or earlier
    layers may need it. This operation takes over the memory of its input if nobody else refers to it;
    otherwise it copies. TensorFlow does not see that it adds nothing.
    """
    flat = tf.reshape(tensor, [-1])
    # TensorFlow never merges two of these operations. If it did, their results would also be merged.
    nowhere = tf.raw_ops.Empty(shape=[0, 1], dtype=tf.int32)
    return tf.raw_ops.ScatterNdNonAliasingAdd(input=flat, indices=nowhere, updates=tf.zeros([0], flat.dtype))
