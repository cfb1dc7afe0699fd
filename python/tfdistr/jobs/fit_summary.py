"""The summary of a fit: where the time of each worker went, and what limits its speed.

``training/step_times.py`` has the parts of the time, and how workers measure them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from tfdistr.errors import ArgumentError
from tfdistr.training.step_times import PARTS
from tfdistr.utils.packages import figure

if TYPE_CHECKING:
    import matplotlib.figure

#: A part of the time that is smaller than this is no bottleneck.
LEAST_SHARE = 0.1
#: One worker is slow if it waits for at most this part of the time for which the others wait.
_UNEVEN = 1 / 3

_WAYS_OUT = {
    "waiting_for_data": (
        "data", "waited {share} of the time for batches; cache() or decode fewer bytes, or prefetch.",
    ),
    "communication": (
        "communication",
        "spent {share} of the time exchanging with each other; take larger batches, "
        'multi_worker_mirrored(gradient_dtype="bfloat16"), or fewer workers.',
    ),
    "checkpoints": (
        "checkpoints", "spent {share} of the time on checkpoints; save less often with checkpoint_every.",
    ),
    "callbacks": (
        "callbacks",
        "spent {share} of the time in callbacks; call slow ones less often, or do their work after training.",
    ),
    "start": (
        "start",
        "spent {share} of the time before the first step was done; this share falls with the length of the "
        "training.",
    ),
}  # fmt: skip
#: What a slow worker did while the others waited.
_DOINGS = {
    "computing": "It computed for {own} of the time, and the others for {others}: look for a slower or busy "
    "processor, or give it fewer examples.",
    "waiting_for_data": "It waited for batches for {own} of the time, and the others for {others}: look at "
    "how it reads its data.",
    "checkpoints": "It spent {own} of the time on checkpoints, and the others {others}: save less often with "
    "checkpoint_every.",
    "callbacks": "It spent {own} of the time in callbacks, and the others {others}: call slow ones less "
    "often.",
}


@dataclass(frozen=True)
class FitSummary:
    """The summary of a fit, which ``print()`` shows.

    Attributes:
        text: The result in words, as ``print(fit)`` shows it, without the line about the time.
        times: For each worker that has measured its time a dictionary with ``index``, and seconds by the
            names of the parts; see `FitResult`.
        bottleneck: One sentence that names what limits the speed; None if no worker has measured its time.
    """

    text: str
    times: list[dict[str, Any]]
    bottleneck: str | None

    def __str__(self) -> str:
        return "\n".join([self.text, *self.table_lines()])

    __repr__ = __str__

    def plot(self) -> matplotlib.figure.Figure:
        """Plot where the time went: one bar for each worker, with its seconds by part.

        Raises:
            ArgumentError: matplotlib is not installed, or no worker has measured its time.
        """
        if not self.times:
            raise ArgumentError(
                "Cannot plot where the time went if no worker has measured its time.",
                received="a fit without times",
                fix="Plot the summary in the session that has trained the fit.",
            )
        drawn: matplotlib.figure.Figure = figure(6, 0.4 * len(self.times) + 1.6)
        panel = drawn.subplots()
        workers = [str(times["index"]) for times in self.times]
        ends = [0.0] * len(workers)
        for name in _known(self.times):
            seconds = [times.get(name, 0.0) for times in self.times]
            panel.barh(workers, seconds, left=ends, label=_words(name))
            ends = [end + more for end, more in zip(ends, seconds, strict=True)]
        panel.invert_yaxis()
        panel.set(xlabel="seconds", ylabel="worker")
        drawn.legend(loc="outside upper center", ncols=4, fontsize="small")
        return drawn

    def table_lines(self) -> list[str]:
        """Return the lines of the table of workers and the bottleneck; none if no time was measured."""
        if self.bottleneck is None:
            return []
        names = _known(self.times)
        rows = [["worker", "seconds", *map(_words, names)]]
        for times in self.times:
            total = _total(times)
            shares = [_percent(times[name] / total) if name in times else "" for name in names]
            rows.append([str(times["index"]), f"{total:.1f}", *shares])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.rjust, row, widths)) for row in rows]
        return ["", *lines, "", self.bottleneck]


def times_of(workers: Iterable[Mapping[str, Any]]) -> list[dict[str, object]]:
    """Return the times of the workers that have measured some, each with the index of its worker."""
    rows = [{"index": row["index"], **row["times"]} for row in workers if row.get("times")]
    return [row for row in rows if _total(row) > 0]


def time_line(times: Sequence[Mapping[str, object]]) -> str | None:
    """Return one line about all workers together, with the shares of their parts; None without times."""
    if not times:
        return None
    shares = {name: fmean(_share(row, name) for row in times) for name in _known(times)}
    shown = {_words(name): _percent(share) for name, share in shares.items()}
    parts = [f"{name} {percent}" for name, percent in shown.items() if percent != _percent(0.0)]
    return f"Time: {max(map(_total, times)):.1f} s: {', '.join(parts)}"


def bottleneck_of(times: Sequence[Mapping[str, object]]) -> str | None:
    """Return one sentence that names what limits the speed, and what helps; None without times."""
    if not times:
        return None
    waits = [_share(row, "waiting_for_peers") for row in times]
    exchanges = [_share(row, "exchanging") for row in times]
    if not any("waiting_for_peers" in row for row in times):  # the waits are in the exchanges
        waits = [share - min(exchanges) for share in exchanges]
        exchanges = [min(exchanges)] * len(times)
    shares = {
        name: fmean(_share(row, name) for row in times)
        for name in ("waiting_for_data", "checkpoints", "callbacks", "start")
    }
    slow = waits.index(min(waits))
    of_others = fmean(waits[:slow] + waits[slow + 1 :]) if len(times) > 1 else 0.0
    if waits[slow] <= _UNEVEN * of_others:
        shares |= {"communication": fmean(exchanges), "peers": of_others}
    else:
        shares["communication"] = fmean(exchanges) + fmean(waits)
    largest = max(shares, key=lambda name: shares[name])
    if shares[largest] < LEAST_SHARE:
        computed = _percent(fmean(_share(row, "computing") for row in times))
        return f"Bottleneck: none. {_subject(times)} computed for {computed} of the time."
    if largest == "peers":
        return _slow_worker(times, slow, of_others)
    title, found = _WAYS_OUT[largest]
    return f"Bottleneck: {title}. {_subject(times)} {found.format(share=_percent(shares[largest]))}"


def _slow_worker(times: Sequence[Mapping[str, object]], slow: int, waited: float) -> str:
    """Return the sentence about a worker for which the others waited."""
    others = [row for number, row in enumerate(times) if number != slow]
    more = {name: _share(times[slow], name) - fmean(_share(row, name) for row in others) for name in _DOINGS}
    doing = max(more, key=lambda name: more[name])
    own, of_others = _share(times[slow], doing), fmean(_share(row, doing) for row in others)
    index = times[slow]["index"]
    return (
        f"Bottleneck: worker {index}. The others waited for it for {_percent(waited)} of the time. "
        + _DOINGS[doing].format(own=_percent(own), others=_percent(of_others))
    )


def _subject(times: Sequence[Mapping[str, object]]) -> str:
    return "The worker" if len(times) == 1 else "Workers"


def _known(times: Sequence[Mapping[str, object]]) -> list[str]:
    return [name for name in PARTS if any(name in row for row in times)]


def _total(times: Mapping[str, Any]) -> float:
    return float(sum(seconds for name, seconds in times.items() if name in PARTS))


def _share(times: Mapping[str, Any], name: str) -> float:
    return float(times.get(name, 0.0)) / _total(times)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _words(name: str) -> str:
    return name.replace("_", " ")
