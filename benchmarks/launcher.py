"""What one more worker costs the launcher and the chief, and what follows for 1,024 workers.

    make bench T=launcher

The workers here do not train: each is a small process that does with its launcher, or with its chief, what a
worker does. All run on this machine, so the times of start, end and rendezvous are of its cores, too.

1. The launcher: its processor time in each second of a job, while workers only live (it looks at their signs
   of life and their exit statuses), and while each writes two events a second. The seconds from the call
   until all are ready, and from an error until all are gone.
2. The rendezvous: the seconds until all have met, and the processor time of the chief.

A line through the numbers for 4 to 32 workers gives the number for 1,024. With more than 64 workers the
launcher looks at them less often, so its processor time for looking is not on the line: this is calculated.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import report

from tfdistr import local_cluster
from tfdistr.network.ports import free_ports
from tfdistr.supervision.supervisor import poll_interval, run_workers

WORKERS = (4, 8, 16, 32)
LARGE = 1024
SECONDS = 6.0
RATE = 2.0  # events of a worker in a second
#: Shares of a core that the launcher may need for 1,024 workers that live, and that write events.
BARS = {"live": 0.25, "events": 1.0}
#: "python -c WORKER RATE RUN_DIR INDEX" waits for the file `all`; worker 0 says when the time is over.
_WORKER = f"""
import sys, time
from pathlib import Path
from tfdistr.supervision.events import EventWriter
rate, run_dir, index = float(sys.argv[1]), sys.argv[2], int(sys.argv[3])
events = EventWriter(run_dir, index)
events.write("ready")
while not Path(run_dir, "all").exists():
    time.sleep(0.05)
end = time.monotonic() + {SECONDS}
while time.monotonic() < end:
    time.sleep(1 / rate if rate else end - time.monotonic())
    if rate:
        events.write("epoch_end", epoch=0, metrics={{"loss": 1.0}}, seconds=0.1)
if index == 0:
    events.write("over")
time.sleep(60)
"""
#: "python -c MEET TASKS NAME" prints the seconds that it waits, and its processor time.
_MEET = """
import json, sys, time
from tfdistr.rendezvous.meeting import meet
print("here", flush=True)
sys.stdin.readline()
began, used = time.monotonic(), time.process_time()
lifelines = meet(json.loads(sys.argv[1]), sys.argv[2], {"tensorflow": "2"}, 120.0)
print(time.monotonic() - began, time.process_time() - used, flush=True)
sys.stdin.readline()
lifelines.say_goodbye()
"""
Costs = dict[str, float]


class _Over(Exception):
    """The time of a measurement is over."""


def launcher(workers: int, rate: float) -> Costs:
    """Run workers that write ``rate`` events a second, and measure this process."""
    cluster: Any = local_cluster(workers, warm=False)
    found: Costs = {}
    ready: set[int] = set()
    moments: dict[str, float] = {"call": time.monotonic()}
    with tempfile.TemporaryDirectory(prefix="tfdistr-bench-") as name:
        run_dir = Path(name, "run")
        run_dir.mkdir(mode=0o700)

        def take(event: dict[str, Any]) -> None:
            if event["event"] == "ready":
                ready.add(event["worker"])
                if len(ready) == workers:
                    (run_dir / "all").touch()
                    moments.update(ready=time.monotonic(), used=time.process_time())
            elif event["event"] == "over":
                moments["over"] = time.monotonic()
                used = time.process_time() - moments["used"]
                found["share"] = used / (moments["over"] - moments["ready"])
                raise _Over

        command = [sys.executable, "-c", _WORKER, str(rate)]
        with contextlib.suppress(_Over):
            run_workers(cluster, command, run_dir, take)
        found |= {"start": moments["ready"] - moments["call"], "end": time.monotonic() - moments["over"]}
    return found


def rendezvous(workers: int) -> Costs:
    """Let workers meet that are all there, and measure how long it takes and what the leader needs."""
    tasks = {f"worker {i}": f"127.0.0.1:{port}" for i, port in enumerate(free_ports(workers))}
    processes = [
        subprocess.Popen([sys.executable, "-c", _MEET, json.dumps(tasks), name], text=True,
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for name in tasks
    ]  # fmt: skip

    def say_all(text: str) -> None:
        for process in processes:
            assert process.stdin is not None
            process.stdin.write(text)
            process.stdin.flush()

    def read_all() -> list[list[str]]:
        return [process.stdout.readline().split() for process in processes if process.stdout is not None]

    try:
        read_all()
        say_all("go\n")
        said = [[float(number) for number in line] for line in read_all()]
        say_all("bye\n")
        for process in processes:
            process.wait(60)
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    return {"meet": max(waited for waited, _ in said), "chief": said[0][1]}


def line_at(values: dict[int, float], workers: int) -> float:
    """The value for another number of workers, on the line of least squares."""
    slope, start = np.polyfit(list(values), list(values.values()), 1)
    return float(start + slope * workers)


#: The name of a row, what measures it, which of its values, and the unit.
ROWS: dict[str, tuple[Callable[[int], Costs], str, str]] = {
    "launcher, workers that live": (lambda n: launcher(n, 0.0), "share", "% of a core"),
    "launcher, 2 events a second each": (lambda n: launcher(n, RATE), "share", "% of a core"),
    "start of all processes": (lambda n: launcher(n, 0.0), "start", "s"),
    "end of all processes": (lambda n: launcher(n, 0.0), "end", "s"),
    "rendezvous": (rendezvous, "meet", "s"),
    "rendezvous, the chief": (rendezvous, "chief", "s of a core"),
}


def compare(rounds: int) -> None:
    """Print the table, and the bars."""
    measured: dict[str, dict[int, float]] = {}
    for name, (measure, value, unit) in ROWS.items():
        factor = 100 if unit.startswith("%") else 1
        measured[name] = {
            workers: factor * report.median([measure(workers)[value] for _ in range(rounds)])
            for workers in WORKERS
        }
    print(f"\nCosts of the launcher and of the rendezvous, medians of {rounds}\n")
    print(f"{'':34}" + "".join(f"{workers:>9}" for workers in WORKERS) + f"{LARGE:>9} (line)  unit")
    for name, values in measured.items():
        row = "".join(f"{values[workers]:9.3f}" for workers in WORKERS)
        print(f"{name:34}{row}{line_at(values, LARGE):9.2f}         {ROWS[name][2]}")
    live, events = (line_at(values, LARGE) / 100 for values in list(measured.values())[:2])
    looking = live * poll_interval(min(WORKERS)) / poll_interval(LARGE)
    shares = {"live": looking, "events": looking + max(events - live, 0.0)}
    print(f"\nThe launcher polls {LARGE} workers every {poll_interval(LARGE):.1f} s.")
    for name, bar in BARS.items():
        share = shares[name]
        result = "met" if share <= bar else "MISSED"
        print(f"{result}: {share:.2f} of a core, at most {bar:g}, with {LARGE} workers ({name})")
