"""Each fault ends the job within a known time, with an error that names the worker and the cause.

`make faults` runs them, and prints who saw what after how many seconds.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from jobs import Job, Said, by_hand, by_mpiexec, launched, wait_for
from launched import processes_of

pytestmark = pytest.mark.timeout(300)
HEARTBEAT = {"heartbeat_timeout": 8.0}
STEP = {"step_timeout": 15.0}  # a busy machine takes seconds for the first step
#: The ways to start, with what carries the collectives.
WAYS = ["ring by hand", "mpi by hand", "ring", "mpi"]


def start(way: str, folder: Path, fault: str | None, **given: Any) -> Any:
    if way.endswith("by hand"):
        return (by_hand if way.startswith("ring") else by_mpiexec)(folder, fault, **given)
    return launched(folder, fault, way, **given)


def texts(said: list[Said]) -> list[str]:
    return [one.text or "" for one in said]


def worker(job: Job, way: str, index: int) -> int:
    """The process id of a worker."""
    if way == "ring by hand":
        return job.processes[index].pid
    if way == "mpi by hand":
        ranks = [
            pid for pid in processes_of(job.folder)
            if f"PMI_RANK={index}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes()
        ]  # fmt: skip
        (pid,) = [pid for pid in ranks if b"faulty.py" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        return pid
    (events,) = job.folder.glob(f"tfdistr-*/workers/{index}/events.jsonl")
    pid = json.loads(events.read_text().splitlines()[0])["pid"]
    assert isinstance(pid, int)
    return pid


def names_worker_1(text: str, way: str) -> bool:
    return re.search(r"Worker 1( of 2 on \S+)? (failed|was killed|was stopped)", text) is not None


def of_each_way(*faults: str) -> Any:
    """All pairs of a fault and a way."""
    return pytest.mark.parametrize(("fault", "way"), [(fault, way) for fault in faults for way in WAYS])


@of_each_way("callback_raises", "model_raises", "data_raises", "pipeline_raises")
def test_an_exception_reaches_all_within_two_seconds(tmp_path, note, way, fault):
    lives_on = {"lives_on": True} if way == "ring by hand" else {}
    with start(way, tmp_path, fault, **lives_on) as job:
        said = job.wait(150)
        note(fault.replace("_", " "), way, said, when=False)
        bad = {"callback_raises": "bad callback", "model_raises": "bad model", "data_raises": "bad data"}
        assert all(bad.get(fault, "bad row") in text for text in texts(said))
        if way == "ring by hand":
            assert said[0].text.startswith("WorkerFailedError: Worker 1 failed: ")
            assert said[0].found["worker"] == 1
            assert abs(said[0].seconds - said[1].seconds) < 2
        else:
            assert way == "mpi by hand" or said[0].found["worker"] == 1


@pytest.mark.parametrize("way", ["ring by hand", "ring", "mpi"])
@pytest.mark.parametrize(("who", "workers"), [(0, 2), (1, 2), (0, 3), (2, 3)])
def test_a_worker_that_is_killed(tmp_path, note, way, who, workers):
    with start(way, tmp_path, None, workers=workers) as job:
        job.wait_until_it_trains()
        os.kill(worker(job, way, who), signal.SIGKILL)
        by = way.endswith("by hand")
        said = job.wait(60, without=(who,) if by else ())
        note(f"kill -9 of worker {who} of {workers}", way, said)
        heard = [one for index, one in enumerate(said) if not (by and index == who)]
        assert all(one.text.startswith("WorkerFailedError: ") and one.found["worker"] == who for one in heard)
        assert all(one.seconds < (3 if by else 15) for one in heard)
        if not by:
            assert "was killed by SIGKILL" in said[0].text
            assert wait_for(lambda: len(processes_of(tmp_path)) <= 1, 5)


@pytest.mark.parametrize("way", WAYS)
def test_a_worker_that_is_halted_for_ever(tmp_path, note, way):
    with start(way, tmp_path, None, **HEARTBEAT) as job:
        job.wait_until_it_trains()
        os.kill(worker(job, way, 1), signal.SIGSTOP)
        said = job.wait(60, without=(1,) if way == "ring by hand" else ())
        note("SIGSTOP of worker 1, for ever", way, said)
        assert names_worker_1(said[0].text, way), said[0].text
        assert 4 < said[0].seconds < 8 + 15
        if way != "ring by hand":
            assert wait_for(lambda: len(processes_of(tmp_path)) <= 1, 5)


@pytest.mark.parametrize("way", WAYS)
def test_a_worker_that_is_halted_for_25_seconds_goes_on(tmp_path, note, way):
    with start(way, tmp_path, None, epochs=400) as job:
        job.wait_until_it_trains()
        pid = worker(job, way, 1)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(25)
        os.kill(pid, signal.SIGCONT)
        said = job.wait(200)
        note("SIGSTOP of worker 1, for 25 s", way, said, when=False)
        assert said[0].text == "trained"


def test_a_network_that_is_cut_for_5_seconds_ends_nothing(tmp_path, note):
    here = str(Path(__file__).parent)
    code = (
        f"import sys, time, subprocess; sys.path.insert(0, {here!r})\n"
        "from pathlib import Path; from jobs import by_hand\n"
        f"with by_hand(Path({str(tmp_path)!r}), None, 2, epochs=300) as job:\n"
        "    job.wait_until_it_trains()\n"
        "    subprocess.run(['ip', 'link', 'set', 'lo', 'down'], check=True)\n"
        "    time.sleep(5)\n"
        "    subprocess.run(['ip', 'link', 'set', 'lo', 'up'], check=True)\n"
        "    print([one.text for one in job.wait(200)])\n"
    )
    network = ["unshare", "-Urn", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    if subprocess.run([*network, "true"], capture_output=True).returncode:
        pytest.skip("no network namespaces here")
    command = [*network, sys.executable, "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert ended.stdout.splitlines()[-1:] == ["['trained', 'trained']"], ended.stdout + ended.stderr[-3000:]
    note("network cut for 5 s", "ring", [Said("trained", 0), Said("trained", 0)], when=False)


@of_each_way("callback_hangs", "pipeline_hangs")
def test_a_worker_that_makes_no_step_is_named_with_its_stack(tmp_path, note, way, fault):
    with start(way, tmp_path, fault, **STEP) as job:
        said = job.wait(150, without=(1,) if way == "ring by hand" and fault == "pipeline_hangs" else ())
        note(fault.replace("_", " "), way, said, when=False)
        text = said[0].text
        if way == "mpi by hand" and "StepTimeoutError" not in text:
            text = job.output()
        assert "StepTimeoutError: A worker made no step within 15 s, which is `step_timeout`." in text
        assert "Received: worker 1 on" in text
        expected = "in hang\n    time.sleep(1.0)" if fault == "callback_hangs" else "loop.py"
        assert expected in text


def test_a_slow_step_is_no_failure(tmp_path, note):
    given = {"seconds": 3.0, "epochs": 8}
    with by_hand(tmp_path, "slow_callback", **STEP, **given) as job:
        assert texts(job.wait(120)) == ["trained"] * 2
