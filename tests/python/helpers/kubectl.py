#!/usr/bin/env python
"""A ``kubectl`` for tests: it keeps objects in a folder, and runs the pods of a Job in network namespaces.

The folder is $KUBECTL_FOLDER. `create` starts a process that does what the controller of Jobs does: it starts
the pods, starts them again as podFailurePolicy and backoffLimit say, and writes their states. It knows these
faults: the namespace "forbidden", the image "nowhere/...", the memory "900Gi" (no node has so much), and
these files in the folder: "mute" (no answer), "slow" (an object takes a second), "stuck" (nothing can be
deleted), "late" (the Job's time is over).
"""

import contextlib
import datetime
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[3] / "tools" / "lab"))
from pods import Pods
from pods import pods as namespaces

FOLDER = Path(os.environ.get("KUBECTL_FOLDER", "/nonexistent"))
GROUPS = {"Job": "job.batch", "NetworkPolicy": "networkpolicy.networking.k8s.io", "Service": "service",
          "ConfigMap": "configmap", "Secret": "secret"}  # fmt: skip
_INDEX = "batch.kubernetes.io/job-completion-index"


def fail(reason: str, words: str) -> int:
    """Say an error as the API server does."""
    print(f"Error from server ({reason}): {words}", file=sys.stderr)
    return 1


def path_of(name: str) -> Path:
    """The file of an object named like "job.batch/train"."""
    return FOLDER / f"{name.replace('/', '-')}.json"


def write(path: Path, content: Any) -> None:
    """Write a file so that readers see it whole."""
    path.with_suffix(".new").write_text(json.dumps(content))
    path.with_suffix(".new").replace(path)


def create() -> int:
    """kubectl create -f - -o name."""
    while (FOLDER / "mute").exists():
        time.sleep(0.02)
    status = 0
    items = json.load(sys.stdin)["items"]
    for each in items:
        name = f"{GROUPS[each['kind']]}/{each['metadata']['name']}"
        if each["metadata"].get("namespace") == "forbidden" and each["kind"] == "Job":
            status = fail("Forbidden", 'jobs.batch is forbidden: User "me" cannot create resource "jobs"')
        elif path_of(name).exists():
            status = fail("AlreadyExists", f'error when creating "STDIN": {name} already exists')
        else:
            write(path_of(name), each)
            if (FOLDER / "slow").exists():
                time.sleep(1)
            print(name)
            if each["kind"] == "Job":
                write(FOLDER / "manifests.json", items)
                with (FOLDER / "controller.log").open("w") as log:
                    subprocess.Popen([sys.executable, __file__, "controller"], stdout=log, stderr=log,
                                     stdin=subprocess.DEVNULL, start_new_session=True)  # fmt: skip
    return status


def get(words: list[str]) -> int:
    """kubectl get job NAME -o json; kubectl get pods --selector ... -o json."""
    if (FOLDER / "mute").exists():
        print("Unable to connect to the server: dial tcp: i/o timeout", file=sys.stderr)
        return 1
    if words[0] == "job":
        path = path_of(f"job.batch/{words[1]}")
        if not path.exists():
            return fail("NotFound", f'jobs.batch "{words[1]}" not found')
        print(path.read_text())
    else:
        found = [json.loads(path.read_text()) for path in sorted(FOLDER.glob("pod-*.json"))]
        print(json.dumps({"items": found}))
    return 0


def logs(pod: str) -> int:
    """kubectl logs --follow POD."""
    with (FOLDER / f"{pod}.log").open("rb") as file:
        while True:
            ended = "terminated" in (FOLDER / f"pod-{pod}.json").read_text()
            content = file.read()
            sys.stdout.buffer.write(content)
            sys.stdout.buffer.flush()
            if ended and not content:
                return 0
            time.sleep(0.02)


def delete(names: list[str]) -> int:
    """kubectl delete NAMES: the pods end, and then the Job is gone."""
    if (FOLDER / "stuck").exists():
        return fail("Forbidden", 'jobs.batch "train" is forbidden: User "me" cannot delete resource "jobs"')
    for name in names:
        path_of(name).unlink(missing_ok=True)
    while (FOLDER / "controller.pid").exists():
        time.sleep(0.02)
    return 0


class Controller:
    """The pods of the Job, as long as it is there and has not ended."""

    def __init__(self, job: dict[str, Any], made: Pods) -> None:
        self.job, self.made = job, made
        self.name = job["metadata"]["name"]
        self.pods: dict[str, dict[str, Any]] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.failed = self.succeeded = self.serial = 0

    def run(self) -> None:
        """Start the pods, and look after them."""
        for index in range(self.made.count):
            self.add(index)
        while path_of(f"job.batch/{self.name}").exists():
            for name, process in list(self.processes.items()):
                if process.poll() is not None:
                    del self.processes[name]
                    self.ended(name, process.returncode)
            if (FOLDER / "late").exists():
                self.stop()
                self.finish("Failed", "DeadlineExceeded", "Job was active longer than specified deadline")
            if self.succeeded == self.made.count:
                self.finish("Complete", "CompletionsReached", "")
            time.sleep(0.02)
        self.stop()

    def add(self, index: int) -> None:
        """A new pod of an index."""
        self.serial += 1
        name = f"{self.name}-{index}-{self.serial:05d}"
        template = self.job["spec"]["template"]
        pod = {"metadata": {"name": name, "annotations": {_INDEX: str(index)}}, "spec": {},
               "status": {"phase": "Pending"}}  # fmt: skip
        self.pods[name] = pod
        (container,) = template["spec"]["containers"]
        if container["image"].startswith("nowhere/"):
            why = f'Back-off pulling image "{container["image"]}"'
            waiting = {"reason": "ImagePullBackOff", "message": why}
            pod["status"]["containerStatuses"] = [{"state": {"waiting": waiting}}]
        elif container["resources"].get("requests", {}).get("memory") == "900Gi":
            why = "0/3 nodes are available: 3 Insufficient memory."
            pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": why}]
        else:
            pod["spec"]["nodeName"] = f"node{index}"
            with (FOLDER / f"{name}.log").open("wb") as log:
                self.processes[name] = self.made.start(index, output=log)
            pod["status"] = {"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}
        self.show(name)

    def show(self, name: str) -> None:
        write(FOLDER / f"pod-{name}.json", self.pods[name])

    def ended(self, name: str, status: int) -> None:
        """Note the end of a pod, and do what the Job says about it."""
        pod = self.pods[name]
        index = int(pod["metadata"]["annotations"][_INDEX])
        code = 128 - status if status < 0 else status
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        terminated = {"exitCode": code, "finishedAt": now, "message": self.made.message(index).read_text()}
        pod["status"] = {"phase": "Failed" if code else "Succeeded",
                         "containerStatuses": [{"state": {"terminated": terminated}}]}  # fmt: skip
        self.made.message(index).write_text("")
        self.show(name)
        if code == 0:
            self.succeeded += 1
            return
        rules = self.job["spec"]["podFailurePolicy"]["rules"]
        ignored = {each for rule in rules for each in rule.get("onExitCodes", {}).get("values", [])}
        self.failed += code not in ignored
        if self.failed > self.job["spec"]["backoffLimit"]:
            self.stop()
            self.finish("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
        else:
            self.add(index)

    def stop(self) -> None:
        """End all pods: SIGTERM, and SIGKILL when the time is over."""
        grace = self.job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        for name, process in self.processes.items():
            try:
                process.wait(grace)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self.pods[name]["status"] = {"phase": "Failed", "containerStatuses": [
                {"state": {"terminated": {"exitCode": 143}}}]}  # fmt: skip
            self.show(name)
        self.processes = {}

    def finish(self, kind: str, reason: str, message: str) -> None:
        """Write the condition with which the Job has ended."""
        path = path_of(f"job.batch/{self.name}")
        if path.exists():
            condition = {"type": kind, "status": "True", "reason": reason, "message": message}
            write(path, {**self.job, "status": {"conditions": [condition]}})
        while path.exists():
            time.sleep(0.02)


def controller() -> int:
    """The controller of the one Job in the folder."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    running = FOLDER / "controller.pid"
    running.write_text(str(os.getpid()))
    try:
        manifests = json.loads((FOLDER / "manifests.json").read_text())
        with namespaces(manifests, FOLDER) as made:
            Controller(manifests[-1], made).run()
    finally:
        for path in FOLDER.glob("pod-*.json"):
            path.unlink()
        running.unlink()
    return 0


def main(words: list[str]) -> int:
    """The command."""
    while words[0] == "--namespace":
        words = words[2:]
    verb, *rest = words
    names = [word for word in rest if not word.startswith("-")]
    with contextlib.suppress(BrokenPipeError):
        if verb == "create":
            return create()
        if verb == "get":
            return get(rest)
        if verb == "logs":
            return logs(names[0])
        if verb == "delete":
            return delete(names)
    return controller()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
