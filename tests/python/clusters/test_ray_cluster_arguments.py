"""ray_cluster(): its arguments, and what a launcher makes of what Ray says. No Ray is needed."""

import inspect
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from refusals import assert_says

import tfdistr
from tfdistr.clusters.guard import MARK, say
from tfdistr.clusters.ray import driver
from tfdistr.clusters.ray import ray_cluster as ray_cluster_module
from tfdistr.clusters.ray.driver import room
from tfdistr.clusters.ray.ray_cluster import ray_cluster
from tfdistr.errors import ArgumentError, ClusterStartError, WorkerFailedError
from tfdistr.supervision.supervisor import run_workers

pytestmark = pytest.mark.timeout(60)
PLACED = {
    "node": "f7", "address": "10.0.0.1", "host": "a", "python": sys.executable, "core": "/x", "sees": True,
}  # fmt: skip


def test_the_resources_of_a_worker() -> None:
    more = ray_cluster(2.0, cores_per_worker=2.0, gpus_per_worker=0.5, resources_per_worker={"TPU": 4.0})
    assert more.resources == {"CPU": 2, "GPU": 0.5, "TPU": 4}
    assert ray_cluster(gpus_per_worker=0).resources == {"CPU": 1, "GPU": 0}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"resources_per_worker": ["TPU"]},
         ["`resources_per_worker` must map names of", 'Received: ["TPU"]',
          'Fix: Pass resources_per_worker={"memory": 8000000000}, for']),
        ({"resources_per_worker": {1: 1}}, ["Each name in `resources_per_worker` must", "Received: 1"]),
        ({"resources_per_worker": {"TPU": 1.5}},
         ["`resources_per_worker` must give TPU a", "Received: 1.5",
          'Fix: Pass resources_per_worker={"TPU": 1}, for example.']),
        ({"resources_per_worker": {"GPU": 2, "TPU": 1}},
         ["The number of GPUs is an argument of all", 'Received: resources_per_worker={"GPU": 2, "TPU": 1}']),
        ({"gpus_per_worker": 1.5},
         ["`gpus_per_worker` must be a whole number,", "Received: 1.5", "Fix: Pass gpus_per_worker=1."]),
        ({"address": "http://a"},
         ["`address` must be the address of a Ray", "Received: a text ('http://a')",
          'Fix: Pass address="10.0.0.1:6379", for example; "auto" is the Ray']),
        ({"runtime_env": "pip"},
         ["`runtime_env` must be a Ray runtime", 'Received: "pip"',
          'Fix: Pass runtime_env={"pip": ["pandas"]}, for example.']),
        ({"runtime_env": {"py_modules": [json]}},
         ["`runtime_env` must be a Ray runtime", "Received: Object of type module is not JSON serializable",
          'Fix: Pass runtime_env={"pip": ["pandas"]}, for example.']),
    ],
)  # fmt: skip
def test_what_is_refused(arguments: dict[str, Any], said: list[str]) -> None:
    with pytest.raises(ArgumentError) as caught:
        ray_cluster(**arguments)
    assert_says(caught.value, said)


@pytest.mark.parametrize(
    "address", ["local", "auto", "10.0.0.1:6379", "ray://head.example:10001", "[fe80::1]:1"]
)
def test_addresses(address: str) -> None:
    assert ray_cluster(address=address).address == address


def test_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster_module, "find_spec", lambda name: None)
    with pytest.raises(ClusterStartError, match=r"ray_cluster\(\) needs the Python package ray\.") as caught:
        tfdistr.distributed_fit(len, [[1.0]], [1.0], cluster=ray_cluster())
    assert caught.value.received == f"none in {sys.prefix}"


def test_how_many_workers_fit() -> None:
    nodes = [{"CPU": 4.0, "GPU": 1.0}, {"CPU": 2.0}, {"CPU": 1.0}]
    assert [room(nodes, {"CPU": 1}, way) for way in ("SPREAD", "PACK", "STRICT_SPREAD", "STRICT_PACK")] == [
        7, 7, 3, 4,
    ]  # fmt: skip
    assert room(nodes, {"CPU": 2, "GPU": 1}, "SPREAD") == 1
    assert room(nodes, {"GPU": 0.25}, "SPREAD") == 4
    assert room(nodes, {"CPU": 0, "TPU": 1}, "PACK") == 0
    assert room([], {"CPU": 1}, "STRICT_PACK") == 0
    assert room(nodes, {"CPU": 0}, "SPREAD") == math.inf


def test_one_worker_less() -> None:
    cluster = ray_cluster(3)
    left = cluster.without(1, 2)
    assert left is not None
    assert (left.workers, left.without(0, 2)) == (2, None)


def test_what_actors_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in {"CUDA_VISIBLE_DEVICES": "3", "RAY_JOB_ID": "1", "A": "1", "B": "1"}.items():
        monkeypatch.setenv(name, value)
    facts = [{**PLACED, "address": f"10.0.0.{n}", "port": 2222 + n, "python": f"/{n}/python"} for n in (1, 2)]
    cluster = ray_cluster(2, cores_per_worker=3, env={"C": "1"}, runtime_env={"env_vars": {"B": "2"}})
    starts = cluster.starts(facts, [sys.executable, "-m", "worker"], tmp_path)
    assert starts[1]["guard"] == ["/2/python", "-I", "-S", "/x/clusters/guard.py", "host"]
    spec = starts[1]["spec"]
    assert spec["command"] == ["/2/python", "-m", "worker", str(tmp_path), "1"]
    assert spec["loopback"] is None
    env = spec["env"]
    assert (env["A"], env["C"], env["TF_NUM_INTRAOP_THREADS"]) == ("1", "1", "3")
    assert not {"CUDA_VISIBLE_DEVICES", "RAY_JOB_ID", "B", "PATH"} & set(env)
    config = tfdistr.ClusterConfig.from_json(env["TF_CONFIG"])
    assert (config.worker_index, config.jobs["worker"]) == (1, ("10.0.0.1:2223", "10.0.0.2:2224"))
    same = [{**fact, "address": "10.0.0.1"} for fact in facts]
    of_one_machine = cluster.starts(same, ["Rscript", "x"], tmp_path)[0]["spec"]
    assert of_one_machine["command"][0] == "Rscript"
    assert of_one_machine["loopback"] == "/x"
    assert '"127.0.0.1:2223"' in of_one_machine["env"]["TF_CONFIG"].replace(" ", "")


SCARCE = {"nodes": [{"host": "a", "CPU": 4.0}], "free": {"CPU": 0.5}}


def fail(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *said: dict[str, Any], then: str = "sys.stdin.read()",
    **options: Any,
) -> ClusterStartError | WorkerFailedError:  # fmt: skip
    program = tmp_path / "driver.py"
    lines = "".join(f"{MARK}{json.dumps(each)}\n" for each in said)
    program.write_text(
        f"import sys\nsys.stdin.readline()\nsys.stdout.write({lines!r})\nsys.stdout.flush()\n{then}"
    )
    monkeypatch.setattr(driver, "__file__", str(program))
    (tmp_path / "run").mkdir()
    began = time.monotonic()
    with pytest.raises((ClusterStartError, WorkerFailedError)) as caught:
        run_workers(ray_cluster(2, cores_per_worker=2, address="local", **options), ["x"], tmp_path / "run")
    assert time.monotonic() - began < 20
    return caught.value


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"refused": "init", "why": "no such field"},
         ["Ray has rejected the job.", "Received: Ray says: no such field"]),
        ({"refused": "no_answer", "why": "timed out"},
         ["The address of ray_cluster() must be the", "Received: local, where none answers: timed out"]),
        ({"refused": "slow", "count": 1, "waited": 300.0},
         ["Ray did not start the actor of each worker", "Received: 1 of 2 actors did not start in time"]),
        ({"refused": "actor", "why": "pip failed"},
         ["Ray did not start an actor for each", "Received: Ray says: pip failed"]),
        ({"refused": "no_place", "waited": 3.0, **SCARCE},
         ["The Ray cluster had no resources for the",
          "Received: 2 workers with 2 CPU each (SPREAD), and the nodes a with 4"]),
    ],
)  # fmt: skip
def test_what_ray_refuses(
    told: dict[str, Any], said: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    error = fail(monkeypatch, tmp_path, told)
    assert isinstance(error, ClusterStartError)
    assert_says(error, said)


STARTED = {"placed": [{**PLACED, "port": 2222}, {**PLACED, "port": 2223}]}
CHECK = (
    "Fix: Check that the node runs (ray status). Pass failures=on_failure(max_restarts=3) and "
    "`checkpoint_every` to resume from the last checkpoint on the remaining nodes."
)


def lost(what: str) -> dict[str, Any]:
    return {"rank": 1, "lost": what, "node": "f7", "why": "The actor died."}


@pytest.mark.parametrize(
    ("told", "place", "said"),
    [
        ([{"placed": [PLACED, {**PLACED, "host": "b", "sees": False}]}], (1, "b"),
         ["The run directory is not visible on every",
          "Received: {run}, which does not exist on b (worker 1)"]),
        ([{"placed": [PLACED, {**PLACED, "host": "b", "core": None}]}], (1, "b"),
         ["Each Ray node must have tfdistr.", "Received: none on b (worker 1)"]),
        (
            [STARTED, {"rank": 1, "lines": [f'{MARK}{{"failed": "no such file"}}'], "ended": True}], (1, "a"),
            ["Cannot start worker 1 on a: no such file.",
             "Fix: Check that the program exists and is executable, and that the run directory is writable."],
        ),
        (
            [STARTED, lost("node")], (1, "a"),
            ["Worker 1 of 2 on a was lost with Ray node f7.", "", "Ray says:", "  The actor died.", "",
             "Its log: {run}/logs/worker-1.log", CHECK],
        ),
        (
            [STARTED, lost("actor")], (1, "a"),
            ["Worker 1 of 2 on a was lost with its Ray actor on node f7.", "", "Ray says:",
             "  The actor died.", "", "Its log: {run}/logs/worker-1.log", CHECK],
        ),
    ],
)  # fmt: skip
def test_a_worker_that_cannot_start_or_is_lost(
    told: list[dict[str, Any]], place: tuple[int, str], said: list[str], monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:  # fmt: skip
    error = fail(monkeypatch, tmp_path, *told)
    assert_says(error, [part.replace("{run}", str(tmp_path / "run")) for part in said])
    assert (error.worker, error.host) == place


def test_a_driver_that_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    error = fail(monkeypatch, tmp_path, then="print('no head', file=sys.stderr); sys.exit(3)")
    assert str(error).splitlines() == [
        "The workers were lost with their connection to Ray, which exited with status 3.", "",
        "Its last lines:", "  no head", "Fix: Check that Ray's head node runs and is reachable (ray status).",
    ]  # fmt: skip


def test_workers_that_other_machines_reach_are_a_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    placed = {"placed": [{**PLACED, "port": 2224}, {**PLACED, "port": 2225}]}
    said = [f'{MARK}{{"open_because": "there is no C compiler", "rank": {rank}}}' for rank in range(2)]
    last = f'{MARK}{{"failed": "no such file"}}'
    fail(
        monkeypatch, tmp_path, placed, {"rank": 0, "lines": said[:1], "ended": False},
        {"rank": 1, "lines": [said[1], last], "ended": True},
    )  # fmt: skip
    assert caplog.messages == [
        "As long as the job runs, whoever reaches a over a network can run code as you, through ports 2224, "
        "2225: nothing keeps other machines out here, because there is no C compiler. Install a C compiler "
        "(cc), or close ports 2224, 2225 in the firewall; if no other machine can reach this one, pass "
        'env={"TFDISTR_LOOPBACK": "none"} to ray_cluster().'
    ]


@pytest.mark.parametrize(
    ("way", "reason"),
    [
        (None, "there is no C compiler"),
        ("none", None),
        ("namespace", 'TFDISTR_LOOPBACK=namespace works with local_cluster() only; here, "preload" does'),
        ("yes", "The environment variable TFDISTR_LOOPBACK must be one of preload, namespace, none."),
    ],
)
def test_the_guard_of_a_worker_says_why_other_machines_reach_it(
    way: str | None, reason: str | None, tmp_path: Path
) -> None:
    spec = {
        "index": 0, "host": "a", "folder": "/", "warm": None, "command": [sys.executable, "-c", ""],
        "env": {"TFDISTR_LOOPBACK": way} if way else {}, "silence": 60.0,
        "loopback": str(Path(tfdistr.__file__).parent),
    }  # fmt: skip
    program = [sys.executable, "-I", "-S", inspect.getfile(say), "host"]
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PATH": str(tmp_path)},
    ) as guard:  # fmt: skip
        assert guard.stdin is not None
        guard.stdin.write(json.dumps(spec) + "\n")  # its end would be that of the launcher
        guard.stdin.flush()
        assert guard.stdout is not None
        lines, status = guard.stdout.read().splitlines(), guard.wait()
        assert guard.stderr is not None
        log = guard.stderr.read()
    assert status == 0, log
    said = [json.loads(line.removeprefix(MARK)) for line in lines]
    assert [each["open_because"] for each in said if "open_because" in each] == [reason] * bool(reason)
    expected = f"tfdistr: this worker listens on all interfaces of its host: {reason}.\n" if reason else ""
    assert log == expected
