"""`tfdistr kubernetes run`, with a `kubectl` that runs the pods in network namespaces."""

import base64
import hashlib
import json
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from elsewhere import Kubernetes

import tfdistr
from tfdistr.cli.kubernetes import kubectl as program
from tfdistr.cli.kubernetes import kubernetes_job as following
from tfdistr.cli.kubernetes.pod_options import FollowedPods

pytestmark = pytest.mark.timeout(300)

@pytest.fixture
def cluster(kubernetes: Kubernetes, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a Kubernetes whose `kubectl` is on PATH."""
    for name, value in kubernetes.env.items():
        monkeypatch.setenv(name, value)
    return kubernetes.folder


def nothing_is_left(cluster: Path, folder: Path) -> None:
    """No object, no pod, no folder of the command."""
    controller_ends(cluster)
    left = [*cluster.glob("*-train.json"), *cluster.glob("pod-*"), *cluster.glob("controller.pid")]
    found = [path for path in (*left, cluster / "controller.log") if path.exists()]
    assert not left, "\n".join(f"{path}: {path.read_text()}" for path in found)
    assert not list(folder.glob("tfdistr-*"))


def controller_ends(cluster: Path) -> None:
    """A controller that started late finds no Job, and ends."""
    end = time.monotonic() + 30
    while (cluster / "controller.pid").exists():
        assert time.monotonic() < end
        time.sleep(0.05)


def wait_for(cluster: Path, state: str) -> None:
    end = time.monotonic() + 60
    while not [path for path in cluster.glob("pod-*.json") if state in path.read_text()]:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_the_output_comes_and_nothing_stays(cluster, start, tmp_path):
    script = "import sys, tfdistr\nprint('here', tfdistr.worker_index(), sys.argv[1:])\n"
    words = ["kubernetes", "run", "-n", "2", "--log-dir", "logs", "train.py", "a b", "$(HOME)"]
    process = start(*words, script=script)
    said, error = process.communicate(timeout=100)
    assert process.returncode == 0, said + error
    lines = [f"here {index} ['a b', '$(HOME)']" for index in range(2)]
    assert sorted(said.splitlines()) == [f"[worker {index}] {line}" for index, line in enumerate(lines)]
    # Pods that are as short as these may have ended before anyone looks.
    assert {f"Worker {index}: Succeeded on node{index}" for index in range(2)} <= set(error.splitlines())
    assert [(tmp_path / "logs" / f"worker-{i}.log").read_text().strip() for i in range(2)] == lines
    nothing_is_left(cluster, tmp_path)


def test_a_secret_reaches_the_pods_and_is_in_no_job(cluster, start, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "s3cret$(HOME)")
    monkeypatch.delenv("TFDISTR_TOKEN", raising=False)
    script = (
        "import hashlib, os\n"
        "for name in ('WANDB_API_KEY', 'TFDISTR_TOKEN'):\n"
        "    print(name, hashlib.sha256(os.environ[name].encode()).hexdigest(), flush=True)\n"
    )
    words = ["--secret-env", "WANDB_API_KEY"]
    process = start("kubernetes", "run", "-n", "2", *words, "train.py", script=script)
    objects = {}
    while process.poll() is None and len(objects) < 5:
        for path in cluster.glob("*-train.json"):
            objects[path.name] = objects.get(path.name) or path.read_text()
        time.sleep(0.02)
    said, error = process.communicate(timeout=100)
    assert process.returncode == 0, said + error
    data = json.loads(objects.pop("secret-train.json"))["data"]
    values = {name: base64.b64decode(text).decode() for name, text in data.items()}
    assert values["WANDB_API_KEY"] == "s3cret$(HOME)"
    expected = {f"{name} {hashlib.sha256(value.encode()).hexdigest()}" for name, value in values.items()}
    for index in range(2):
        assert {f"[worker {index}] {line}" for line in expected} <= set(said.splitlines())
    assert "job.batch-train.json" in objects
    for text in [*objects.values(), said, error]:
        for secret in (*values.values(), *data.values()):
            assert secret not in text
    nothing_is_left(cluster, tmp_path)


def test_the_first_failure_is_named_with_its_traceback(cluster, start, tmp_path):
    breaks = "if tfdistr.worker_index():\n    raise ValueError('broken')\n"
    script = f"import tfdistr, time\n{breaks}time.sleep(60)\n"
    process = start("kubernetes", "run", "-n", "2", "train.py", script=script)
    _, error = process.communicate(timeout=100)
    assert process.returncode == 1
    assert "Worker 1 of 2 on node1 failed: ValueError: broken\n\nTraceback (most recent call last):" in error
    (log,) = re.findall(r"^Its log: (.*)$", error, re.MULTILINE)
    assert "ValueError: broken" in Path(log).read_text()
    assert log.startswith(str(tmp_path))
    (tmp_path / Path(log).parent.name).rename(tmp_path / "logs-of-failure")
    nothing_is_left(cluster, tmp_path)


@pytest.mark.parametrize(
    ("number", "status", "words"),
    [
        (signal.SIGINT, 130, "Interrupted: the pods were deleted.\n"),
        pytest.param(signal.SIGTERM, 75, """\
The Job was told to end (SIGTERM), and its pods were deleted.
Fix: Run it again: a distributed_fit() with resume=True continues at its checkpoint.
""", marks=pytest.mark.slow(reason="waits for pods to end and to start again")),
    ],
)  # fmt: skip
def test_a_signal_deletes_the_pods(cluster, start, tmp_path, number, status, words):
    script = "import time\nprint('begun')\ntime.sleep(100)\n"
    process = start("kubernetes", "run", "-n", "2", "--grace-period", "5", "train.py", script=script)
    wait_for(cluster, "running")
    process.send_signal(number)
    _, error = process.communicate(timeout=60)
    assert process.returncode == status
    assert error.endswith(words)
    nothing_is_left(cluster, tmp_path)


REFUSED = {
    "an image that is not there": (["--image", "nowhere/tfdistr:1"], """\
Each pod must be able to start its container.
Received: worker 0 waits: ImagePullBackOff: Back-off pulling image "nowhere/tfdistr:1"
Fix: Correct what Kubernetes names, for example with image=... of a registry that the nodes reach.
"""),
    "no node has so much": (["--memory", "900Gi", "--start-timeout", "0.5"], """\
Each pod must run within 0.5 s.
Received: worker 0: Pending (0/3 nodes are available: 3 Insufficient memory.)
Fix: Ask for less for each pod, or pass a larger `start_timeout`.
"""),
    "no right": (["--namespace", "forbidden"], """\
Kubernetes must accept the objects of the Job.
Received: Error from server (Forbidden): jobs.batch is forbidden: User "me" cannot create resource "jobs"
Fix: See what it names, and try: kubectl auth can-i create jobs
"""),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_start_is_named_and_deleted(cluster, start, tmp_path, case):
    words, message = REFUSED[case]
    process = start("kubernetes", "run", "-n", "1", *words, "train.py")
    _, error = process.communicate(timeout=60)
    assert process.returncode == 1
    assert error.endswith(message)
    nothing_is_left(cluster, tmp_path)


def test_other_objects_of_the_name_are_left_alone(cluster, start, tmp_path):
    others = cluster / "service-train.json"
    others.write_text("{}")
    process = start("kubernetes", "run", "train.py")
    _, error = process.communicate(timeout=60)
    assert process.returncode == 2
    assert error.splitlines() == [
        "`name` must be one that no other objects have.",
        'Received: train: Error from server (AlreadyExists): error when creating "STDIN": service/train '
        "already exists",
        'Fix: Pass another name, such as name="digits-2", or delete the others.',
    ]
    assert others.read_text() == "{}"
    others.unlink()
    nothing_is_left(cluster, tmp_path)


def test_a_job_that_somebody_deletes(cluster, start, tmp_path):
    process = start("kubernetes", "run", "-n", "1", "train.py", script="import time\ntime.sleep(100)\n")
    wait_for(cluster, "running")
    (cluster / "job.batch-train.json").unlink()
    _, error = process.communicate(timeout=60)
    assert process.returncode == 1
    assert error.splitlines()[-3:] == [
        "The Job must stay until its pods have ended.",
        'Received: it was deleted: Error from server (NotFound): jobs.batch "train" not found',
        "Fix: Run it again: a distributed_fit() with resume=True continues at its checkpoint.",
    ]
    nothing_is_left(cluster, tmp_path)


def test_a_kubernetes_that_does_not_answer_is_asked_again(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(following, "_SILENCE", 0.5)
    monkeypatch.setattr(following, "_PAUSE", 0.2)
    script = tmp_path / "train.py"
    script.write_text("import time\ntime.sleep(2)  # it is seen running\nprint('well')\n")
    events = []

    def take(event):
        events.append(event)
        if event["event"] == "warning":
            (cluster / "mute").unlink()
        elif event["event"] == "state" and "Running" in event["state"]:
            (cluster / "mute").touch()

    pods = FollowedPods(script=str(script), workers=1, log_dir=str(tmp_path / "logs"))
    following.run_pods(pods, take)
    assert [event["message"] for event in events if event["event"] == "warning"] == [
        "Kubernetes has not answered for 0 s. The pods may run on."
    ]
    assert {"event": "log", "worker": 0, "line": "well"} in events


def test_ctrl_c_while_the_objects_are_made_deletes_them(cluster, start, tmp_path):
    (cluster / "slow").touch()
    process = start("kubernetes", "run", "-n", "1", "train.py", script="import time\ntime.sleep(100)\n")
    end = time.monotonic() + 60
    while not (cluster / "configmap-train.json").exists():
        assert time.monotonic() < end
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[1] == "Interrupted: the pods were deleted.\n"
    assert process.returncode == 130
    nothing_is_left(cluster, tmp_path)


def run_here(folder: Path) -> list[dict[str, Any]]:
    """Run a script in this process, and return the events."""
    script = folder / "train.py"
    script.write_text("import time\ntime.sleep(1)\n")
    events: list[dict[str, Any]] = []
    following.run_pods(FollowedPods(script=str(script), workers=1), events.append)
    return events


def test_a_kubernetes_that_takes_no_objects_in_time(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(program, "_TIMEOUT", 0.5)
    (cluster / "mute").touch()
    with pytest.raises(tfdistr.ClusterStartError) as caught:
        run_here(tmp_path)
    assert str(caught.value).splitlines()[:2] == [
        "Kubernetes must accept the objects of the Job.", "Received: no answer within 0.5 s",
    ]  # fmt: skip


def test_a_job_that_fails_without_a_worker_that_does(cluster, tmp_path):
    (cluster / "late").touch()
    with pytest.raises(tfdistr.ClusterStartError) as caught:
        run_here(tmp_path)
    assert str(caught.value).splitlines() == [
        "The Job has failed.",
        "Received: DeadlineExceeded: Job was active longer than specified deadline",
        "Fix: See: kubectl describe job train",
    ]
    nothing_is_left(cluster, tmp_path)


def test_objects_that_cannot_be_deleted_are_said(cluster, tmp_path):
    (cluster / "stuck").touch()
    warnings = [event["message"] for event in run_here(tmp_path) if event["event"] == "warning"]
    assert warnings == [
        'The objects of the Job may still be there: Error from server (Forbidden): jobs.batch "train" is '
        'forbidden: User "me" cannot delete resource "jobs". See: kubectl get configmap/train service/train '
        "networkpolicy.networking.k8s.io/train job.batch/train"
    ]
    (cluster / "job.batch-train.json").unlink()  # the pods end
    controller_ends(cluster)


def test_without_kubectl(start, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    process = start("kubernetes", "run", "train.py")
    assert process.communicate(timeout=60)[1].splitlines() == [
        "`tfdistr kubernetes run` needs kubectl.",
        "Received: no kubectl on PATH",
        "Fix: Install kubectl, or write the manifests: tfdistr kubernetes write -n 4 train.py",
    ]


def test_a_log_dir_that_is_a_file(cluster, start, tmp_path):
    (tmp_path / "logs").write_text("")
    process = start("kubernetes", "run", "--log-dir", "logs", "train.py")
    _, error = process.communicate(timeout=60)
    assert process.returncode == 2
    assert error.splitlines() == [
        "`log_dir` must be a folder, or be free for one.",
        f"Received: {tmp_path}/logs: File exists",
        "Fix: Name another folder.",
    ]
    nothing_is_left(cluster, tmp_path)
