"""What a worker measures of itself, in a file of its own: the seconds of each epoch, the bytes that it sent
to the network in each, its memory after each, and its peak memory.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def sent_bytes() -> int:
    """What this process's interfaces have sent since they exist, but for the loopback."""
    lines = [line.split(":") for line in Path("/proc/self/net/dev").read_text().splitlines()[2:]]
    return sum(int(counts.split()[8]) for name, counts in lines if name.strip() != "lo")


def memory_mb(which: str = "VmRSS") -> float:
    """The memory of this process; VmHWM is its peak since exec, where getrusage() counts the parent, too."""
    (kb,) = re.findall(rf"{which}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(kb) / 1024


def save(folder: str, epochs: list[float], sent: Sequence[int] = (), resident: Sequence[float] = ()) -> None:
    """Write what this process measured to ``folder``."""
    peak = memory_mb("VmHWM")
    found = {"epochs": epochs, "sent": list(sent), "resident_mb": list(resident), "peak_mb": peak}
    Path(folder, f"{os.getpid()}.json").write_text(json.dumps(found))


def saved(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """What the workers saved in ``folder``."""
    return [json.loads(file.read_text()) for file in sorted(Path(folder).glob("*.json"))]


def examples_per_second(folder: str | os.PathLike[str], examples: int) -> float:
    """The speed of a run that saved in ``folder``: of its slowest worker, by its later epochs."""
    slowest = max(statistics.median(worker["epochs"][1:]) for worker in saved(folder))
    return examples / slowest


def events(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The events of the first worker of the run in ``folder``."""
    return list(map(json.loads, Path(folder, "run/workers/0/events.jsonl").read_text().splitlines()))


def meet(folder: str, peers: int, timeout: float = 120.0) -> None:
    """Wait until ``peers`` processes have come here, so that what they do next happens at the same time."""
    Path(folder, f"{os.getpid()}.here").touch()
    end = time.monotonic() + timeout
    while len(list(Path(folder).glob("*.here"))) < peers:
        if time.monotonic() > end:
            raise TimeoutError(f"not all of {peers} processes came within {timeout:g} s")
        time.sleep(0.001)


def callback(folder: str, peers: int = 1, keras: Any = None) -> Any:
    """A callback that saves the measurements; with several ``peers``, after a first epoch they meet."""
    if keras is None:
        import keras

    class Measure(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_begin(self, logs: Any = None) -> None:
            self.epochs: list[float] = []
            self.sent: list[int] = []
            self.resident: list[float] = []

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if epoch == 1 and peers > 1:
                meet(folder, peers)
            self.before = sent_bytes()
            self.began = time.monotonic()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.epochs.append(time.monotonic() - self.began)
            self.sent.append(sent_bytes() - self.before)
            self.resident.append(memory_mb())

        def on_train_end(self, logs: Any = None) -> None:
            save(folder, self.epochs, self.sent, self.resident)

    return Measure()


def first_step(folder: str) -> Any:
    """A callback that writes when the first step of this worker ended."""
    import keras

    class FirstStep(keras.callbacks.Callback):  # type: ignore[misc]
        decides = False  # else all workers would exchange their metrics after each step
        made = False

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if not self.made:
                self.made = True
                Path(folder, f"{os.getpid()}.first").write_text(str(time.time()))

    return FirstStep()
