"""A latency-bandwidth model of MPI's all-reduce: fitted to measured times, tried on others, extrapolated.

An all-reduce of n bytes on N workers takes

    rounds * (alpha + waits * latency) + share * n * (8 * eta / rate + gamma)      seconds

Tensors up to SHORT bytes go by recursive doubling: log2(N) rounds in each of which a worker sends all n bytes
and waits for one latency. Larger ones go by a reduce-scatter and an all-gather: 2 log2(N) rounds, in which a
worker sends 2 (N - 1) / N * n bytes. Fitted are alpha, the seconds that a message costs the two programs;
waits, how many latencies a larger message takes (about 2: it is announced, then fetched); and eta, the
bytes on the link for each of the tensor. gamma, the seconds that a byte costs the processor, is measured in
shared memory.

Source: Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH (2005).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

#: Up to this many bytes MPICH uses recursive doubling.
SHORT = 2048


@dataclass(frozen=True)
class Point:
    """An all-reduce of ``size`` bytes on links of ``mbit`` Mbit/s and ``delay`` seconds of latency.

    Where it was measured, what the slowest worker needed and what the one that sent most sent.
    """

    workers: int
    mbit: float
    delay: float
    size: int
    seconds: float = math.nan
    sent: float = math.nan

    @property
    def rounds(self) -> int:
        doublings = math.ceil(math.log2(self.workers))
        return doublings if self.size <= SHORT else 2 * doublings

    @property
    def bytes_to_send(self) -> float:
        return self.rounds * self.size if self.size <= SHORT else self.least

    @property
    def least(self) -> float:
        """The least that each worker can send, as on a ring."""
        return 2 * (self.workers - 1) / self.workers * self.size


@dataclass(frozen=True)
class Model:
    """The constants that are named above."""

    alpha: float
    waits: float
    eta: float
    gamma: float

    def seconds(self, point: Point) -> float:
        """What an all-reduce takes."""
        waits = 1.0 if point.size <= SHORT else self.waits
        per_byte = self.eta * 8e-6 / point.mbit + self.gamma
        return point.rounds * (self.alpha + waits * point.delay) + point.bytes_to_send * per_byte

    def error(self, point: Point) -> float:
        """By which part of the measured time the model is too long."""
        return self.seconds(point) / point.seconds - 1


def fit(points: Sequence[Point], gamma: float) -> Model:
    """The constants with the least squares of the relative errors."""
    known = Model(0.0, 0.0, 0.0, gamma)
    rows = [
        [
            point.rounds / point.seconds,
            point.rounds * point.delay / point.seconds * (point.size > SHORT),
            point.bytes_to_send * 8e-6 / point.mbit / point.seconds,
        ]
        for point in points
    ]
    left = [-known.error(point) for point in points]
    alpha, waits, eta = np.linalg.lstsq(np.array(rows), np.array(left), rcond=None)[0]
    return Model(float(alpha), float(waits), float(eta), gamma)


def table(points: Sequence[Point], kept_out: Sequence[Point], model: Model) -> list[str]:
    """The measured points beside what the model says, and its errors."""
    head = f"{'Mbit/s':>7}{'latency':>10}{'bytes':>12}{'N':>4}{'ms':>10}{'model':>10}{'error':>8}"
    lines = [f"{head}{'sent/least':>12}"]
    for point in points:
        cells = f"{point.mbit:7}{point.delay * 1e3:7.1f} ms{point.size:12,}{point.workers:4}"
        times = f"{point.seconds * 1e3:10.2f}{model.seconds(point) * 1e3:10.2f}{model.error(point):8.0%}"
        mark = "   kept out" if point in kept_out else ""
        sent = f"{point.sent / point.least:12.3f}" if point.size > SHORT else " " * 12  # it is all headers
        lines.append(f"{cells}{times}{sent}{mark}".rstrip())
    groups = {
        "fitted to": [point for point in points if point not in kept_out],
        "kept out": list(kept_out),
        "kept out, of 1 MB or more": [point for point in kept_out if point.size >= 1_000_000],
    }
    lines.append("")
    for name, group in groups.items():
        errors = [abs(model.error(point)) for point in group] or [math.nan]
        found = f"median {statistics.median(errors):.0%}, largest {max(errors):.0%}"
        lines.append(f"Error on the {len(group)} points {name}: {found}")
    return lines
