"""A restart, the memory of workers, and fits in a row; see start.py. The last line printed is JSON."""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import measure
import networks

import tfdistr
from tfdistr.fork_server import servers


def proportional_mb(pid: int) -> float:
    """The memory of a process, of which shared pages count in part for each that shares them."""
    (kb,) = re.findall(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    return int(kb) / 1024


def there() -> set[str]:
    """What of this process a fit could leave."""
    found = {f"/dev/shm/{name}" for name in os.listdir("/dev/shm")}
    ours = ("tfdistr-", "hydra_", "Rtmp")
    found |= {f"/tmp/{name}" for name in os.listdir("/tmp") if name.startswith(ours)}
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return found | {f"process {pid}" for pid in children}


if __name__ == "__main__":
    folder, row = Path(sys.argv[1]), int(sys.argv[2])
    x, y = networks.data("seed", 640)

    def fit(name: str, workers: int, warm: bool = True, **options: Any) -> tfdistr.FitResult:
        """One run."""
        return tfdistr.distributed_fit(
            lambda: networks.model("seed"), x, y, cluster=tfdistr.local_cluster(workers, warm=warm), seed=1,
            verbose=0, run_dir=folder / name / "run", **options,
        )  # fmt: skip

    def dies() -> list[Any]:
        """The callback of a worker that is killed once, in the second epoch."""
        import keras

        def die(epoch: int, logs: Any) -> None:
            if epoch == 1 and not (folder / "died").exists():
                (folder / "died").write_text(str(time.time()))
                os.kill(os.getpid(), signal.SIGKILL)

        return [keras.callbacks.LambdaCallback(on_epoch_begin=die)]

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
    steps = [event["time"] for event in measure.events(folder / "restart") if event["event"] == "batch"]
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
            growth = -measure.memory_mb()
    gc.collect()
    growth += measure.memory_mb()
    left = sorted(there() - before)
    more = len(os.listdir("/proc/self/fd")) - files
    left += [f"{more} open files"] if more > 0 else []
    print(json.dumps({"restart": restart, "mb": mb, "growth": growth, "left": left}))
