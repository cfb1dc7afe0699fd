"""NCCL between GPUs: whether the workers can use it, and its first exchange.

NCCL connects processes that have a GPU each. It refuses two processes on one card, also on two of its slices.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from tfdistr.collectives.interface import Collectives
from tfdistr.errors import ClusterStartError, TfdistrError
from tfdistr.rendezvous.peer_failure import reported_failure
from tfdistr.utils.gpus import VISIBLE, addresses_of_gpus
from tfdistr.utils.processes import running_system
from tfdistr.utils.warn import NOTE

log = logging.getLogger("tfdistr")

#: The warning for the user when the ring takes the place of NCCL.
NO_NCCL = (
    "NCCL needs a GPU on every worker, and TensorFlow sees none here: the workers exchange gradients with "
    'the ring. Pass communication="ring", or install a TensorFlow that can use the GPUs of this machine.'
)
_SHOWN = 4  # workers in a message


class Seen(NamedTuple):
    """A worker's host, and the GPUs that TensorFlow uses in its process."""

    host: str
    gpus: list[str]

    @classmethod
    def here(cls) -> Seen:
        """Return what this process sees. Initializes no device."""
        gpus = tf.config.get_visible_devices("GPU")
        addresses = addresses_of_gpus() if gpus else ()
        named = os.environ.get(VISIBLE, "").split(",")
        numbers = [int(gpu.name.rpartition(":")[2]) for gpu in gpus]
        known = addresses or (named if named != [""] else ())
        return cls(
            running_system(), [known[number] if number < len(known) else str(number) for number in numbers]
        )


def choose(collectives: Collectives, asked: str, titles: Sequence[str], *, in_order: bool) -> str:
    """Choose "nccl" or "ring" with the other workers; NCCL promises no order of the sums."""
    seen = [Seen(*json.loads(text)) for text in collectives.exchange(json.dumps(Seen.here()))]
    why = why_not(titles, seen)
    if why is not None and not why and asked == "auto" and in_order:
        why = "virtual workers need sums in a fixed order, which NCCL does not promise"
    uses_nccl = why == "" and asked != "ring"
    if collectives.index == 0:
        _say(asked, why, len(seen))
    return "nccl" if uses_nccl else "ring"


def why_not(titles: Sequence[str], seen: Sequence[Seen]) -> str | None:
    """Return why NCCL cannot connect the workers; "" if it can, None if no worker sees a GPU."""
    blind = [title for title, each in zip(titles, seen, strict=True) if not each.gpus]
    if len(blind) == len(seen):
        return None
    if blind:
        some = next((title, each) for title, each in zip(titles, seen, strict=True) if each.gpus)
        more = f" and {len(blind) - _SHOWN} more" if len(blind) > _SHOWN else ""
        raise ClusterStartError(
            "Either all workers must see a GPU, or none.",
            received=f"{', '.join(blind[:_SHOWN])}{more} without a GPU, {some[0]} with GPU {some[1].gpus[0]}",
            fix="See nvidia-smi there, and install tfdistr[gpu]. Or leave the host out, or hide all GPUs: "
            'gpus_per_worker=0, or CUDA_VISIBLE_DEVICES="" for every worker.',
        )
    owners: dict[tuple[str, str], str] = {}
    for title, each in zip(titles, seen, strict=True):
        for gpu in each.gpus:
            other = owners.setdefault((each.host, gpu), title)
            if other != title:
                return f"NCCL refuses two workers on one GPU: {other} and {title} share GPU {gpu}"
    return ""


def _say(asked: str, why: str | None, workers: int) -> None:
    if why is None and asked == "nccl":
        log.warning(NO_NCCL)
    elif why is None or asked == "ring":
        log.info("communication: ring")
    elif why:
        log.warning("The gradients are exchanged with the ring, because %s.", why, extra=NOTE)
    else:
        text = "The gradients are exchanged with NCCL, because each of the %d workers has a GPU of its own."
        log.warning(text, workers, extra=NOTE)


def connect(collectives: Collectives, titles: Sequence[str], timeout: float) -> None:
    """Sum a number over the workers, which makes NCCL connect them, within ``timeout`` seconds."""
    # NCCL writes to the standard output, which is the log of a worker.
    os.environ.setdefault("NCCL_DEBUG", "WARN")
    failures: list[Exception] = []
    sums: list[float] = []

    def first() -> None:
        try:
            sums.append(float(collectives.sum(tf.constant(1.0))))
        except Exception as error:
            failures.append(error)

    # A call that hangs cannot be interrupted, so the process leaves it behind.
    thread = threading.Thread(target=first, name="tfdistr-nccl", daemon=True)
    thread.start()
    thread.join(timeout)
    if sums == [float(len(titles))]:
        return
    raise _failure(failures, sums, titles[collectives.index], timeout) from next(iter(failures), None)


def _failure(failures: list[Exception], sums: list[float], title: str, timeout: float) -> TfdistrError:
    for failure in failures:
        if (reported := reported_failure(failure)) is not None:
            return reported
    cause = f"no connection within {timeout:g} s"
    if sums:
        cause = f"a wrong sum, {sums[0]:g}"
    for failure in failures:
        cause = str(getattr(failure, "message", failure)).strip().partition("\n")[0]
    return ClusterStartError(
        "NCCL cannot connect the GPUs of the workers.",
        received=f"{title}: {cause}",
        fix='See "NCCL WARN" in the logs of the workers; with NCCL_DEBUG=INFO it says more. Set '
        "NCCL_SOCKET_IFNAME to the network interface between the hosts, or pass "
        'strategy=multi_worker_mirrored(communication="ring").',
    )
