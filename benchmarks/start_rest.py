"""A restart, the memory of workers, and fits in a row; see start.py. The last line printed is JSON."""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import networks

import tfdistr
from tfdistr.fork_server import servers

EXAMPLES = 640


def proportional_mb(pid: int) -> float:
    """The memory of a process, of which shared pages count in part for each that shares them."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


def resident_mb() -> float:
    """The memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def there() -> set[str]:
    """What of this process a fit could leave."""
    found = {f"/dev/shm/{name}" for name in os.listdir("/dev/shm")}
    ours = ("tfdistr-", "hydra_", "Rtmp")
    found |= {f"/tmp/{name}" for name in os.listdir("/tmp") if name.startswith(ours)}
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return found | {f"process {pid}" for pid in children}


if __name__ == "__main__":
    folder, row = Path(sys.argv[1]), int(sys.argv[2])
    x, y = (part[:EXAMPLES] for part in networks.data("seed"))

    def fit(name: str, workers: int, warm: bool = True, **options: Any) -> tfdistr.FitResult:
        """One run."""
        return tfdistr.distributed_fit(
            lambda: networks.model("seed"), x, y, cluster=tfdistr.local_cluster(workers, warm=warm), seed=1,
            verbose=0, run_dir=folder / name, **options,
        )  # fmt: skip

    def dies() -> list[Any]:
        """The callback of a worker that is killed once, in the second epoch."""
        import keras

        class Dies(keras.callbacks.Callback):  # type: ignore[misc]
            def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
                if epoch == 1 and not (folder / "died").exists():
                    (folder / "died").write_text(str(time.time()))
                    os.kill(os.getpid(), signal.SIGKILL)

        return [Dies()]

    def stays() -> list[Any]:
        """A callback that says how much memory this worker has, when all are there."""
        import keras

        def note(epoch: int, logs: Any) -> None:
            time.sleep(2.0)
            with open(folder / "memory", "a") as file:
                file.write(f"{proportional_mb(os.getpid())}\n")
            time.sleep(2.0)

        return [keras.callbacks.LambdaCallback(on_epoch_end=note)]

    fit("first", 2)
    fit("restart", 2, epochs=3, failures=tfdistr.on_failure(max_restarts=1), callbacks=dies)
    died = float((folder / "died").read_text())
    lines = (folder / "restart/workers/0/events.jsonl").read_text().splitlines()
    steps = [event["time"] for event in map(json.loads, lines) if event["event"] == "batch"]
    restart = min(at for at in steps if at > died) - died

    mb = {}
    for kind in ("cold", "warm"):
        (folder / "memory").write_text("")
        fit(f"memory-{kind}", 4, kind == "warm", callbacks=stays)
        mb[kind] = sum(map(float, (folder / "memory").read_text().split()))
    # The pages that it shared with the workers count for it alone now.
    (server,) = servers.pids()
    mb["server"] = proportional_mb(server)

    fit("before", 2)
    gc.collect()
    files, before, growth = len(os.listdir("/proc/self/fd")), there(), 0.0
    for number in range(row):
        fit(f"row-{number}", 2)
        if number == 9:
            growth = -resident_mb()
    gc.collect()
    growth += resident_mb()
    left = sorted(there() - before)
    more = len(os.listdir("/proc/self/fd")) - files
    left += [f"{more} open files"] if more > 0 else []
    print(json.dumps({"restart": restart, "mb": mb, "growth": growth, "left": left}))
