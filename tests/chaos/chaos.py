"""Trains a model while its workers are killed, stopped and robbed of their folders, and compares every bit.

    python tests/chaos/chaos.py --seed 1 --kills 8 --workers 2 --communication ring
    python tests/chaos/chaos.py --seed 1 --kills 8 --virtual 4

With ``--virtual`` the number of workers changes: after each kill the job continues with a random number of
workers, up to the number of virtual workers. It is compared with an undisturbed run of one worker.
The disturbed run must end with the weights, the optimizer's variables and the history of one that was left
in peace. Exit status 0 if it does.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

import tfdistr
from tfdistr.checkpoint.folder import CheckpointFolder, checkpoint_folder
from tfdistr.supervision.events import events_path

STEPS = 400  # of an epoch
EPOCHS = 6
EVERY = 20
HALTED = 10.0  # seconds until a worker that is stopped counts as failed


def model() -> keras.Model:
    made = keras.Sequential(
        [
            keras.layers.Dense(512, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(512, activation="relu"),
            keras.layers.Dense(2, activation="softmax"),
        ]
    )
    made.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return made


def train(folder: Path | str, workers: int, strategy: Any, **arguments: Any) -> tfdistr.FitResult:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(16 * STEPS, 6)).astype("float32")
    y = (x[:, 0] * x[:, 1] > 0).astype("int64")
    given = {
        "cluster": tfdistr.local_cluster(workers, heartbeat_timeout=HALTED), "checkpoint_every": EVERY,
        "failures": tfdistr.on_failure(max_restarts=2),
    }  # fmt: skip
    return tfdistr.distributed_fit(
        model, x, y, validation_data=(x[:100], y[:100]), batch_size=16, epochs=EPOCHS, seed=1,
        callbacks=[
            keras.callbacks.EarlyStopping(patience=EPOCHS), keras.callbacks.ReduceLROnPlateau(patience=1),
        ],
        strategy=strategy, run_dir=folder, verbose=0, **given | arguments,
    )  # fmt: skip


def difference(one: tfdistr.FitResult, other: tfdistr.FitResult) -> str | None:
    """What differs between two results, in any bit; None if nothing does."""
    if one.history != other.history:
        return f"the history: {one.history} and {other.history}"
    for what, mine, others in (
        ("weights", one.model.get_weights(), other.model.get_weights()),
        ("optimizer", one.model.optimizer.variables, other.model.optimizer.variables),
    ):
        for number, pair in enumerate(zip(mine, others, strict=True)):
            first, second = (np.asarray(value).tobytes() for value in pair)
            if first != second:
                return f"the {what}, variable {number}"
    return None


class Chaos(threading.Thread):
    """Does one fault after the other to a job that runs in another thread.

    Args:
        run_dir: The run directory of the job.
        workers: How many it has.
        faults: Names of faults: "kill", "kill the chief", "kill during a save", "halt" or "delete".
        seed: Which worker, and when.
        say: Called with a line for each.
        gone: Processes of workers that have ended before.
    """

    def __init__(
        self,
        run_dir: Path,
        workers: int,
        faults: Sequence[str],
        seed: int,
        say: Callable[[str], None] = print,
        gone: set[int] | None = None,
    ) -> None:
        super().__init__(daemon=True)
        self._run_dir, self._workers, self._faults, self._say = run_dir, workers, faults, say
        self._random = random.Random(seed)
        self._folder = CheckpointFolder(checkpoint_folder(run_dir))
        self._last: list[int] = []
        self._gone = set() if gone is None else gone  # processes of workers that were ended
        self.done: list[str] = []

    def run(self) -> None:
        for fault in self._faults:
            pids = self._pids()
            self._wait_for_checkpoints(self._random.randint(1, 3))
            time.sleep(self._random.random() * 0.1)  # so that it comes at any moment
            while not self._do(fault, pids):
                pids = self._pids()
            self.done.append(fault)

    def _do(self, fault: str, pids: list[int]) -> bool:
        """Do it; whether it has succeeded."""
        where = str(max(self._folder.positions()))
        if fault == "delete":
            worker = self._random.randrange(self._workers)
            shutil.rmtree(events_path(self._run_dir, worker).parent)
            self._say(f"the folder of worker {worker} deleted, after {where}")
            return True
        if fault == "kill during a save":
            while not list(self._folder.path.glob("*.partial")):
                pass
        chief = fault in ("kill the chief", "kill during a save")
        worker = 0 if chief else self._random.randrange(self._workers)
        os.kill(pids[worker], signal.SIGSTOP if fault == "halt" else signal.SIGKILL)
        self._gone.update(pids)
        if fault == "kill during a save":
            left = [path.name for path in self._folder.path.glob("*.partial")]
            self._say(f"worker 0 killed, after {where}, during a save: {left[0] if left else 'too late'}")
            return bool(left)
        verb = "stopped (SIGSTOP)" if fault == "halt" else "killed (kill -9)"
        self._say(f"worker {worker} {verb}, after {where}")
        return True

    def _pids(self) -> list[int]:
        """The processes of workers that were started since the last fault that ended them."""
        while True:
            found = []
            for worker in range(self._workers):
                path = events_path(self._run_dir, worker)
                try:
                    found += [json.loads(line).get("pid") for line in path.read_text().splitlines()[:1]]
                except (OSError, ValueError):
                    break
            if len(found) == self._workers and not self._gone & set(found):
                self._last = found
            if self._last and not self._gone & set(self._last):  # also where one has no folder any more
                return self._last
            time.sleep(0.01)

    def _wait_for_checkpoints(self, number: int) -> None:
        before = set(self._folder.positions())
        seen: set[object] = set()
        while len(seen) < number:
            seen |= set(self._folder.positions()) - before
            time.sleep(0.002)


def run(
    faults: Sequence[str], *, workers: int, strategy: Any, seed: int, say: Callable[[str], None] = print
) -> str | None:
    """Train twice, once with the faults, and return what differs, or which fault was not done."""
    with tempfile.TemporaryDirectory(prefix="tfdistr-chaos-") as folder:
        began = time.monotonic()
        peaceful = train(Path(folder, "peaceful"), workers, strategy)
        say(f"undisturbed: {time.monotonic() - began:.0f} s")
        began = time.monotonic()
        run_dir = Path(folder, "disturbed")
        chaos = Chaos(run_dir, workers, faults, seed, say)
        chaos.start()
        disturbed = train(run_dir, workers, strategy)
        say(f"disturbed: {time.monotonic() - began:.0f} s")
        left = list(faults)[len(chaos.done) :]
        return f"no time for {left}" if left else difference(peaceful, disturbed)


def run_elastic(
    kills: int, *, most: int, strategy: Any, seed: int, say: Callable[[str], None] = print
) -> str | None:
    """Train once on one worker, and once with another number of workers after each kill, up to ``most``.

    Returns:
        What differs, or which fault was not done.
    """
    chosen, gone = random.Random(seed), set[int]()
    with tempfile.TemporaryDirectory(prefix="tfdistr-chaos-") as folder:
        peaceful = train(Path(folder, "peaceful"), 1, strategy, virtual_workers=most)
        run_dir = Path(folder, "disturbed")
        for number in range(kills + 1):
            workers = chosen.randint(1, most)
            say(f"with {workers} worker{'s' * (workers > 1)}")
            if number < kills:
                Chaos(run_dir, workers, ["kill"], chosen.randrange(1000), say, gone).start()
            try:
                disturbed = train(
                    run_dir, workers, strategy, virtual_workers=most, resume=True, failures=None
                )
            except tfdistr.WorkerFailedError:
                continue
            return f"no time for kill {number + 1}" if number < kills else difference(peaceful, disturbed)
    return "the last run failed"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--communication", default="auto", choices=["auto", "ring", "mpi"])
    parser.add_argument("--virtual", type=int, help="number of virtual workers: change that of workers")
    given = parser.parse_args()
    steps = f"{EPOCHS} epochs of {STEPS} steps, a checkpoint every {EVERY}, seed {given.seed}"
    strategy = tfdistr.multi_worker_mirrored(communication=given.communication)
    if given.virtual:
        found = run_elastic(given.kills, most=given.virtual, strategy=strategy, seed=given.seed)
        print(f"{given.kills} kills, 1 to {given.virtual} workers, {given.communication}, {steps}:")
        return verdict(found)
    kills = ["kill"] * max(given.kills - 1, 0) + ["kill the chief"] * min(given.kills, 1)
    faults = [*kills, "kill during a save", "halt", "delete"]
    random.Random(given.seed).shuffle(faults)
    found = run(faults, workers=given.workers, strategy=strategy, seed=given.seed)
    print(f"{len(faults)} faults, {given.workers} workers, {given.communication}, {steps}:")
    return verdict(found)


def verdict(found: str | None) -> int:
    print(f"DIFFERENT: {found}" if found else "weights, optimizer and history are the same, bit by bit")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
