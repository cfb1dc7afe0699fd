"""What the model of scaling_model.py says of clusters and links that are not here."""

from __future__ import annotations

from networks import NETWORKS, PER_WORKER_BATCH
from scaling_model import Model, Point

#: Bytes in which gradients go out, one pack after the other; BYTES_PER_PACK of communication.collectives.
PACK = 4 * 1024 * 1024
WORKERS = (2, 8, 64, 1024)
#: Links: Gbit/s, and seconds of latency from one host to another.
LINKS = ((1, 50e-6), (10, 20e-6), (100, 5e-6))
RESNET = "ResNet-50"
RESNET_WEIGHTS = 25_600_000
RESNET_IMAGES_PER_SECOND = 100


def table(model: Model, compute: dict[str, float]) -> list[str]:
    """Assumptions and times, for the networks whose seconds of computation in a step are given.

    ResNet-50 is put beside them.
    """
    compute = compute | {RESNET: PER_WORKER_BATCH / RESNET_IMAGES_PER_SECOND}
    weights = {name: network.weights for name, network in NETWORKS.items()} | {RESNET: RESNET_WEIGHTS}
    lines = [*_assumptions(model, compute), ""]
    lines += ["Extrapolated: ms of a step's all-reduces (part of the step in which a worker computes)", ""]
    heads = "".join(f"{f'N = {workers:,}':>17}" for workers in WORKERS)
    lines.append(f"{'':10}{'gradients':>10}{'Gbit/s':>8}{heads}")
    for name, seconds in compute.items():
        size = weights[name] * 4
        for gbit, delay in LINKS:
            times = [all_reduces(model, size, workers, gbit, delay) for workers in WORKERS]
            cells = "".join(f"{f'{t * 1e3:,.1f} ({seconds / (seconds + t):.0%})':>17}" for t in times)
            lines.append(f"{name:10}{size / 1e6:7.1f} MB{gbit:8}{cells}")
    return lines


def all_reduces(model: Model, size: int, workers: int, gbit: float, delay: float) -> float:
    """Seconds of the all-reduces of ``size`` bytes of gradients."""
    packs, rest = divmod(size, PACK)
    seconds = packs * model.seconds(Point(workers, gbit * 1000, delay, PACK))
    return seconds + (model.seconds(Point(workers, gbit * 1000, delay, rest)) if rest else 0.0)


def _assumptions(model: Model, compute: dict[str, float]) -> list[str]:
    links = "; ".join(f"{gbit} Gbit/s, {delay * 1e6:.0f} us" for gbit, delay in LINKS)
    steps = ", ".join(f"{name} {seconds * 1e3:.1f} ms" for name, seconds in compute.items())
    return [
        "Assumed for larger clusters:",
        f"* {PER_WORKER_BATCH} images a worker and step; one worker a host; all are equally fast",
        "* no all-reduce is hidden behind the computation",
        f"* gradients are float32, in packs of {PACK / 2**20:g} MiB, one after the other",
        f"* links and their latencies: {links};",
        "  between them a network that carries all of them at their full rate",
        f"* alpha = {model.alpha * 1e6:.0f} us and gamma = {model.gamma * 1e9:.2f} ns as on this machine",
        f"* computation of a step: {steps}",
        f"  (as measured here on one core; {RESNET} as on a host with {RESNET_IMAGES_PER_SECOND} images/s)",
    ]
