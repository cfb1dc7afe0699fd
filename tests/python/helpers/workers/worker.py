"""A worker without TensorFlow: python worker.py BEHAVIOURS RUN_DIR INDEX.

BEHAVIOURS names what each worker does, by commas; the last name is that of all further workers.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import traceback
from pathlib import Path

from tfdistr.rendezvous.meeting import meet
from tfdistr.rendezvous.protocol import no_port, no_port_error
from tfdistr.supervision.events import EventReader, EventWriter
from tfdistr.supervision.reporting import continue_without_log
from tfdistr.utils.processes import die_with_parent

LONG = 600.0


def finish() -> None:
    events.write("train_begin", epochs=2, steps=3)
    for epoch in range(2):
        events.write("epoch_begin", epoch=epoch)
        for step in range(3):
            if index == 0:
                events.write("batch", epoch=epoch, step=step + 1, steps=3, metrics={"loss": 1.0})
        events.write("epoch_end", epoch=epoch, metrics={"loss": 0.5}, seconds=0.1)
    events.write("done", seconds=0.2)


def wait() -> None:
    time.sleep(LONG)


def fail() -> None:
    raise ValueError("bad loss")


def fail_without_files() -> None:
    wait_for_all()
    os.closerange(0, 256)
    fail()


def lose_run_dir() -> None:
    wait_for_all()
    time.sleep(0.5)  # the launcher reads what was reported
    shutil.rmtree(run_dir)
    os._exit(1)


def fail_late() -> None:
    wait_for_all()
    time.sleep(0.4)
    fail()


def fail_and_live() -> None:
    try:
        fail()
    except ValueError as error:
        report(error)
    time.sleep(LONG)


def fail_in_r() -> None:
    events.write("failed", error_type="simpleError", message="object 'y' not found\nin the loss", peer=False,
                 traceback="1. model()\n2. loss(y)", language="r")  # fmt: skip
    sys.exit(1)


def lose_peer() -> None:
    wait_for_all()
    report(RuntimeError("Socket closed"), peer=True)
    sys.exit(1)


def kill() -> None:
    print("reading the data", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def segfault() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def realtime_signal() -> None:
    os.kill(os.getpid(), signal.SIGRTMIN + 3)


def ignore_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    events.write("ready")
    time.sleep(LONG)


def halt() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(LONG)


def leave() -> None:
    os._exit(0)


def exit_3() -> None:
    wait_for_all()
    print("\n".join(f"line {number}" for number in range(30)))
    print("there is no package called 'tfdistr'", flush=True)
    os._exit(3)


def finish_late() -> None:
    time.sleep(1)
    finish()


def fail_at_last() -> None:
    wait_for_end_of(1)
    fail()


def exit_at_last() -> None:
    wait_for_end_of(1)
    os._exit(3)


def abort_late() -> None:
    events.write("done", seconds=0.1)
    os.abort()


def done_but_stay() -> None:
    events.write("done", seconds=0.1)
    time.sleep(LONG)


def never_ready() -> None:
    time.sleep(LONG)


def listen() -> None:
    """Listen where TF_CONFIG says, as TensorFlow's server does."""
    config = json.loads(os.environ["TF_CONFIG"])
    port = int(config["cluster"]["worker"][index].rpartition(":")[2])
    server = socket.socket()
    try:
        server.bind(("", port))
    except OSError as error:
        raise no_port_error(f"worker {index}", *no_port(error)) from error
    with server:
        server.listen()
        finish()


def meet_peers() -> None:
    """Find the other workers, as strategies do, and report where a server of this worker listens."""
    config = json.loads(os.environ["TF_CONFIG"])
    tasks = {f"worker {i}": address for i, address in enumerate(config["cluster"]["worker"])}
    lifelines = meet(tasks, f"worker {index}", {}, 30)
    with socket.create_server(("", int(tasks[f"worker {index}"].rpartition(":")[2]))) as server:
        events.write("met", listens=server.getsockname()[0], tasks=list(tasks.values()))
    lifelines.say_goodbye()
    finish()


def grandchild() -> None:
    child = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({LONG})"])
    events.write("grandchild", pid=child.pid)
    finish()


def grandchild_of_killed() -> None:
    child = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({LONG})"])
    events.write("grandchild", pid=child.pid)
    time.sleep(0.2)
    kill()


def wait_with_grandchild() -> None:
    child = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({LONG})"])
    events.write("grandchild", pid=child.pid)
    wait()


def environment() -> None:
    events.write("environment", values=dict(os.environ), folder=os.getcwd(), stdin=sys.stdin.read())
    events.write("done", seconds=0.1)


def talk() -> None:
    """Print lines, and continue when somebody has read them."""
    print(f"hello from {index}", flush=True)
    print("to stderr", file=sys.stderr, flush=True)
    print("E0000 00:00:1795976845.919168   12690 cuda_platform.cc:52] failed call to cuInit", flush=True)
    print("10%\r100%", flush=True)
    sys.stdout.buffer.write(b"caf\xe9 [bold]x\n")
    sys.stdout.flush()
    until = time.monotonic() + 20
    while not (run_dir / f"read-{index}").exists():
        if time.monotonic() > until:
            raise TimeoutError("nobody read")
        time.sleep(0.02)
    print("the last words", end="", flush=True)
    events.write("done", seconds=0.1)


def fill_the_disk() -> None:
    """Wait until all workers are there, then leave no byte to events and logs, and print."""
    continue_without_log(events)
    wait_for_all()
    with open(run_dir / f"filling-{index}", "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    print("a line that is lost, " * 5000, flush=True)
    print("another one", file=sys.stderr, flush=True)


def finish_on_full_disk() -> None:
    fill_the_disk()
    finish()


def fail_on_full_disk() -> None:
    fill_the_disk()
    fail()


def killed_on_full_disk() -> None:
    fill_the_disk()
    os._exit(1)


def wait_for_all() -> None:
    """Wait until every worker is ready, however slow the machine is."""
    ranks = os.environ.get("SLURM_STEP_NUM_TASKS")
    workers = int(ranks) if ranks else len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"])
    reader, ready = EventReader(run_dir, workers), set()
    while len(ready) < workers:
        ready |= {event["worker"] for event in reader.poll() if event["event"] == "ready"}
        time.sleep(0.02)


def wait_for_end_of(worker: int) -> None:
    """Wait until another worker has ended."""
    reader, done = EventReader(run_dir, 2), False
    while not done:
        done = any((event["worker"], event["event"]) == (worker, "done") for event in reader.poll())
        time.sleep(0.02)
    time.sleep(1)


def report(error: Exception, peer: bool = False) -> None:
    events.write(
        "failed",
        error_type=type(error).__name__,
        message=str(error),
        traceback=traceback.format_exc() if sys.exc_info()[0] else None,
        language="python",
        peer=peer,
    )


if __name__ == "__main__":
    die_with_parent()
    names, run_dir, index = sys.argv[1].split(","), Path(sys.argv[2]), int(sys.argv[3])
    behaviour = globals()[names[min(index, len(names) - 1)]]
    events = EventWriter(run_dir, index)
    events.write("started", pid=os.getpid(), host=socket.gethostname())
    if behaviour not in (never_ready, ignore_sigterm):
        events.write("ready")
    try:
        behaviour()
    except Exception as error:
        report(error)
        os._exit(1)
