"""The Kubernetes objects that run a script: Job, Service, ConfigMap, Secret and NetworkPolicy."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tfdistr.cli.kubernetes.pod import MESSAGE, PEER_STATUS
from tfdistr.cli.kubernetes.pod_options import Pods
from tfdistr.errors import STOPPED_STATUS, ArgumentError
from tfdistr.rendezvous.pods import HOSTS, PORT, RUN_DIR, WORKERS
from tfdistr.utils.trusted_files import create_private

#: An object of Kubernetes, or a part of one.
Manifest = dict[str, Any]
_LISTENS = 2222
_SCRIPTS, _VOLUME, _MESSAGE = "/mnt/script", "/mnt/volume", "/mnt/message"
_QUIET = {"PYTHONUNBUFFERED": "1", "TF_CPP_MIN_LOG_LEVEL": "2", "GRPC_VERBOSITY": "ERROR"}
_POOLS = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")


def kubernetes_manifests(
    script: str,
    workers: int = 2,
    *,
    arguments: Sequence[str] = (),
    name: str | None = None,
    image: str | None = None,
    in_image: bool = False,
    cores_per_worker: int | None = None,
    memory: str | None = None,
    gpus_per_worker: int = 0,
    volume: str | None = None,
    run_dir: str | None = None,
    max_restarts: int = 0,
    env: Mapping[str, str] | None = None,
    secret_env: Sequence[str] = (),
    namespace: str | None = None,
    grace_period: int = 120,
) -> list[Manifest]:
    """Give the objects of Kubernetes that run a script as workers.

    Args:
        script: The path of a script of Python (``.py``) or R (``.R``), of at most 1,000,000 bytes.
        workers: The number of workers, each in a pod of its own.
        arguments: The arguments of the script.
        name: The name of all objects; by default it follows from the name of the script.
        image: The image of the pods; by default what ``tfdistr kubernetes containerfile`` makes.
        in_image: Whether ``script`` is a path in the image. Otherwise a ConfigMap brings the script.
        cores_per_worker: The number of processor cores of each pod.
        memory: The memory of each pod, such as "8Gi".
        gpus_per_worker: The number of NVIDIA GPUs of each pod: 1 at most, if there are several workers.
        volume: The name of a PersistentVolumeClaim. All pods mount it.
        run_dir: The folder in the volume for checkpoints, for a ``distributed_fit()`` without ``run_dir``.
        max_restarts: How often the workers start again after a failure. Preempted pods are not counted.
        env: Environment variables for the workers. They are in the Job, in plain text.
        secret_env: Names of environment variables. A Secret brings the values that they have in this process.
        namespace: The namespace of the objects; by default the namespace of ``kubectl``.
        grace_period: Seconds from SIGTERM to SIGKILL, in which a checkpoint is saved.

    Returns:
        The ConfigMap, the Secret, the Service, the NetworkPolicy and the Job, each as a dictionary. The
        Secret has the variables of ``secret_env``. For several workers it also has ``TFDISTR_TOKEN``, unless
        ``env`` sets it: the token of this process, or a new one.

    Raises:
        ArgumentError: An argument is not of that form, the script is not there, or a variable of
            ``secret_env`` is not set.

    Example:
        >>> [each["kind"] for each in kubernetes_manifests("train.py", workers=4)]
        ['ConfigMap', 'Secret', 'Service', 'NetworkPolicy', 'Job']
    """
    given = {option: value for option, value in locals().items() if (option, value) != ("name", None)}
    return objects(Pods(**given))


def objects(pods: Pods) -> list[Manifest]:
    """The objects that run a script, in the order in which they are made."""
    made = [] if pods.in_image else [_config_map(pods)]
    made += [_secret(pods)] if pods.secret_variables else []
    return [*made, _service(pods), _network_policy(pods), _job(pods)]


def write_manifests(output: str | None = None, **options: Any) -> str:
    """Write the objects into a new file, by default NAME.json, and return its path."""
    pods = Pods(**options)
    path = output or f"{pods.name}.json"
    write_new(path, as_text(pods))
    return path


def write_new(path: str, text: str) -> None:
    """Write text into a new file that only this user can read: manifests contain secrets."""
    try:
        with create_private(path, "xb") as file:
            file.write(text.encode())
    except OSError as error:
        raise ArgumentError(
            "`output` must name a new file.", received=f"{path}: {error.strerror}", fix="Name another file."
        ) from error


def as_text(pods: Pods) -> str:
    """The objects as the JSON that ``kubectl`` reads."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects(pods)}, indent=2) + "\n"


def labels(pods: Pods) -> dict[str, str]:
    """The labels of all objects."""
    return {"app.kubernetes.io/name": "tfdistr", "app.kubernetes.io/instance": pods.name}


def _object(version: str, kind: str, pods: Pods, **members: object) -> Manifest:
    metadata = {"name": pods.name, "labels": labels(pods)}
    if pods.namespace is not None:
        metadata["namespace"] = pods.namespace
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **members}


def _config_map(pods: Pods) -> Manifest:
    content = Path(pods.script).read_bytes()
    try:
        return _object("v1", "ConfigMap", pods, data={"script": content.decode("utf-8")})
    except UnicodeDecodeError:
        return _object("v1", "ConfigMap", pods, binaryData={"script": base64.b64encode(content).decode()})


def _secret(pods: Pods) -> Manifest:
    data = {name: base64.b64encode(value.encode()).decode() for name, value in pods.secret_variables.items()}
    return _object("v1", "Secret", pods, type="Opaque", data=data)


def _service(pods: Pods) -> Manifest:
    # Names resolve before pods are ready: the workers wait for each other.
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": labels(pods),
            "ports": [{"name": "worker", "port": _LISTENS}]}  # fmt: skip
    return _object("v1", "Service", pods, spec=spec)


def _network_policy(pods: Pods) -> Manifest:
    # TensorFlow's server lets in whoever reaches it.
    same_job = {"podSelector": {"matchLabels": labels(pods)}}
    spec = {**same_job, "policyTypes": ["Ingress"], "ingress": [{"from": [same_job]}]}
    return _object("networking.k8s.io/v1", "NetworkPolicy", pods, spec=spec)


def _job(pods: Pods) -> Manifest:
    ignored = [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "Ignore", "onExitCodes": {
            "containerName": "worker", "operator": "In", "values": [STOPPED_STATUS, PEER_STATUS]}},
    ]  # fmt: skip
    template = {"metadata": {"labels": labels(pods)}, "spec": _pod(pods)}
    spec = {"completions": pods.workers, "parallelism": pods.workers, "completionMode": "Indexed",
            "backoffLimit": pods.max_restarts, "podFailurePolicy": {"rules": ignored},
            "template": template}  # fmt: skip
    return _object("batch/v1", "Job", pods, spec=spec)


def _pod(pods: Pods) -> Manifest:
    volumes, mounts = [], []
    if not pods.in_image:
        items = [{"key": "script", "path": Path(pods.script).name}]
        volumes.append({"name": "script", "configMap": {"name": pods.name, "items": items}})
        mounts.append({"name": "script", "mountPath": _SCRIPTS, "readOnly": True})
    if pods.volume is not None:
        volumes.append({"name": "volume", "persistentVolumeClaim": {"claimName": pods.volume}})
        mounts.append({"name": "volume", "mountPath": _VOLUME})
    return {
        "restartPolicy": "Never",
        "subdomain": pods.name,
        "terminationGracePeriodSeconds": pods.grace_period,
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "containers": [_container(pods, mounts)],
        "volumes": volumes,
    }


def _container(pods: Pods, mounts: list[Manifest]) -> Manifest:
    script = pods.script if pods.in_image else f"{_SCRIPTS}/{Path(pods.script).name}"
    command = ["python", "-m", "tfdistr", "kubernetes", "worker", script, *pods.arguments]
    return {
        "name": "worker",
        "image": pods.image,
        "command": [_unexpanded(word) for word in command],
        "env": _environment(pods),
        "ports": [{"name": "worker", "containerPort": _LISTENS}],
        "resources": _resources(pods),
        "terminationMessagePath": _MESSAGE,
        "volumeMounts": mounts,
    }


def _environment(pods: Pods) -> list[Manifest]:
    threads = dict.fromkeys(_POOLS, str(pods.cores_per_worker)) if pods.cores_per_worker else {}
    place = {WORKERS: str(pods.workers), HOSTS: f"{pods.name}-{{index}}.{pods.name}", PORT: str(_LISTENS),
           MESSAGE: _MESSAGE}  # fmt: skip
    if pods.run_dir is not None:
        place[RUN_DIR] = f"{_VOLUME}/{pods.run_dir}"
    sources: dict[str, Manifest] = {}
    for name, value in {**_QUIET, **threads, **pods.env}.items():
        sources[name] = {"value": _unexpanded(value)}
    for name in pods.secret_variables:
        sources[name] = {"valueFrom": {"secretKeyRef": {"name": pods.name, "key": name}}}
    for name, value in place.items():
        sources[name] = {"value": _unexpanded(value)}
    return [{"name": name, **source} for name, source in sources.items()]


def _resources(pods: Pods) -> Manifest:
    amounts: dict[str, str] = {}
    if pods.cores_per_worker is not None:
        amounts["cpu"] = str(pods.cores_per_worker)
    if pods.memory is not None:
        amounts["memory"] = pods.memory
    if pods.gpus_per_worker:
        amounts["nvidia.com/gpu"] = str(pods.gpus_per_worker)
    # Both: pods whose limits are their requests are the last that a node evicts.
    return {"requests": amounts, "limits": dict(amounts)} if amounts else {}


def _unexpanded(text: str) -> str:
    """A text of a container from which Kubernetes makes ``text``: it replaces $(NAME)."""
    return text.replace("$", "$$")
