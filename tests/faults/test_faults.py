"""Each fault ends the job within a known time, with an error that names the worker and the cause.

`make faults` runs all, and prints who saw what after how many seconds; `make test` runs those marked "quick".
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from jobs import Job, Said, by_hand, by_mpiexec, launched, wait_for

import tfdistr
from tfdistr.network.ports import free_ports

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


def processes_of(folder: Path) -> list[int]:
    """The Python processes of a job, by their commands, of which each has this folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes()
            state = (process / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if os.fsencode(folder) in line and state != "Z" and int(process.name) != os.getpid():
            found.append(int(process.name))
    return found


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
        expected = 'in hang\n    time.sleep(1.0)' if fault == "callback_hangs" else "loop.py"
        assert expected in text


def test_a_slow_step_is_no_failure(tmp_path, note):
    given = {"seconds": 3.0, "epochs": 8}
    with by_hand(tmp_path, "slow_callback", **STEP, **given) as job:
        assert texts(job.wait(120)) == ["trained"] * 2


def test_a_worker_that_never_starts_and_a_name_that_does_not_resolve(tmp_path, note):
    options = {"start_timeout": 15.0}
    addresses = [f"127.0.0.1:{port}" for port in free_ports(3)]
    unknown = ["no-such-host.invalid:1", *addresses[1:]]
    for name, listed in (("never starts", addresses), ("no such name", unknown)):
        configs: list[str | None] = [task.to_json() for task in tfdistr.tf_config(worker=listed)]
        configs[0] = None  # the chief
        folder = tmp_path / name
        folder.mkdir()
        with by_hand(folder, None, configs=configs, **options) as job:
            said = job.wait(90)
        note(f"worker 0: {name}", "ring", said, when=False)
        why = "where nobody listens" if name == "never starts" else "whose name does not resolve"
        for text in texts(said):
            assert text.startswith("ClusterStartError: ")
            assert f"waited for worker 0 ({listed[0]}), {why}" in text
            assert "; " not in text.splitlines()[1]


@pytest.mark.quick
def test_what_is_wrong_with_one_worker_is_told_to_all_at_once(tmp_path, note):
    def run(name: str, configs: list[Any], **given: Any) -> list[Said]:
        folder = tmp_path / name.replace(" ", "-")
        folder.mkdir()
        with by_hand(folder, name, configs=configs, **given) as job:
            said = job.wait(90)
        note(name, "ring", said, when=False)
        times = [one.seconds for one in said if one.text]
        assert max(times) - min(times) < 20
        return said

    with socket.create_server(("", 0)) as server:
        listed = [f"127.0.0.1:{port}" for port in [*free_ports(1), server.getsockname()[1]]]
        plan = [task.to_json() for task in tfdistr.tf_config(worker=listed)]
        for text in texts(run("port in use", plan)):
            assert f"worker 1 ({listed[1]}): another process listens on its port" in text

    listed = [f"127.0.0.1:{port}" for port in free_ports(3)]
    plan = [task.to_json() for task in tfdistr.tf_config(worker=listed)]
    other = [task.to_json() for task in tfdistr.tf_config(worker=[*listed[:2], "127.0.0.1:9"])]
    said = run("wrong address of another", [plan[0], other[1], plan[2]])
    for text in texts(said):
        assert text.startswith("JobMismatchError: ")
        assert f"address of worker 2: {listed[2]} on worker 0 and worker 2, 127.0.0.1:9 on worker 1" in text


@pytest.mark.parametrize("fault", ["duplicate index", "version"])
def test_other_mistakes_in_tf_config_and_versions(tmp_path, note, fault):
    listed = [f"127.0.0.1:{port}" for port in free_ports(2)]
    plan = [task.to_json() for task in tfdistr.tf_config(worker=listed)]
    if fault == "duplicate index":
        plan = [plan[0], plan[1], plan[1]]
    options = {"start_timeout": 40.0}
    with by_hand(tmp_path, fault, configs=plan, epochs=2, **options) as job:
        said = job.wait(120)
    note(fault, "ring", said, when=False)
    if fault == "duplicate index":
        assert any("worker 1" in text and "ClusterStartError" in text for text in texts(said))
    else:
        expected = r"version of TensorFlow: .* on worker 0, 2\.20\.0 on worker 1"
        assert all(re.search(expected, text) for text in texts(said))


@pytest.mark.parametrize("way", ["ring by hand", "mpi by hand", "mpi"])
@pytest.mark.parametrize("fault", ["model_shape", "fewer_examples", "epochs"])
def test_workers_that_differ_say_in_what(tmp_path, note, way, fault):
    if (way == "mpi" or way == "mpi by hand") and fault == "epochs":
        pytest.skip("one call, one number of epochs")
    with start(way, tmp_path, fault) as job:
        said = job.wait(120)
        note(fault.replace("_", " "), way, said, when=False)
        assert all("JobMismatchError: " in text and " on worker 1" in text for text in texts(said))


def test_a_rank_that_ends_before_it_trains(tmp_path, note):
    with by_mpiexec(tmp_path, "ends_before_mpi") as job:
        job.wait_until_it_trains()
        assert wait_for(lambda: job.processes[0].poll() is not None, 30), job.output()
        seconds = time.time() - job.began
        assert "no such file: pictures.zip" in job.output()
        (received,) = re.findall("Received: worker 0 .* waited for worker 1, which has exited", job.output())
        note("ends before it trains", "mpi by hand", [Said(received, seconds)])
