"""The objects that run a script: what they say, and that Kubernetes takes them."""

import base64
import json
import os
import re
from pathlib import Path
from typing import Any
from unittest import mock

import kubernetes_validate
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tfdistr
from tfdistr import kubernetes_manifests
from tfdistr.cli.kubernetes.pod_options import Pods, label_of
from tfdistr.rendezvous.pods import kubernetes_cluster_from_env
from tfdistr.rendezvous.token import TOKEN

#: podFailurePolicy is there since 1.26; the newest is what the package brings.
VERSIONS = ("1.31", kubernetes_validate.latest_version())
text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)


def expanded(word: str) -> str:
    """What Kubernetes makes of a word of a command when no variable of that name is defined."""
    return re.sub(r"\$\$", "$", word)


def container(manifests: list[dict[str, Any]]) -> dict[str, Any]:
    (only,) = manifests[-1]["spec"]["template"]["spec"]["containers"]
    assert isinstance(only, dict)
    return only


def variables(manifests: list[dict[str, Any]]) -> dict[str, str]:
    """The variables of the Job."""
    return {each["name"]: expanded(each["value"]) for each in container(manifests)["env"] if "value" in each}


def secrets(manifests: list[dict[str, Any]]) -> dict[str, str]:
    """The variables that the container takes from the Secret."""
    data = {each["metadata"]["name"]: each["data"] for each in manifests if each["kind"] == "Secret"}
    keys = {each["name"]: each["valueFrom"]["secretKeyRef"] for each in container(manifests)["env"]
            if "valueFrom" in each}  # fmt: skip
    return {name: base64.b64decode(data[key["name"]][key["key"]]).decode() for name, key in keys.items()}


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("script") / "My train.py"
    path.write_text("print('à')\n")
    return str(path)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    workers=st.integers(1, 1000),
    arguments=st.lists(text, max_size=3),
    cores=st.none() | st.integers(1, 64),
    memory=st.sampled_from([None, "8Gi", "1.5G", "700000000"]),
    gpus=st.integers(0, 1),
    run_dir=st.none() | st.from_regex(r"[a-z]{1,9}(/[a-z]{1,9})?", fullmatch=True),
    env=st.dictionaries(st.from_regex(r"[A-Z_][A-Z0-9_.-]{0,9}", fullmatch=True), text, max_size=3),
    namespace=st.sampled_from([None, "team-a"]),
    in_image=st.booleans(),
)
def test_kubernetes_takes_them_and_the_pods_get_what_was_given(
    script: str, workers: int, arguments: list[str], cores: int | None, memory: str | None, gpus: int,
    run_dir: str | None, env: dict[str, str], namespace: str | None, in_image: bool,
) -> None:  # fmt: skip
    manifests = kubernetes_manifests(
        "/app/train.R" if in_image else script, workers, arguments=arguments, cores_per_worker=cores,
        memory=memory, gpus_per_worker=gpus, volume=run_dir and "claim", run_dir=run_dir, env=env,
        namespace=namespace, in_image=in_image, name="digits",
    )  # fmt: skip
    for version in VERSIONS:
        for each in manifests:
            kubernetes_validate.validate(each, version, strict=True)
    assert {each["metadata"].get("namespace") for each in manifests} == {namespace}
    command = [expanded(word) for word in container(manifests)["command"]]
    path = "/app/train.R" if in_image else "/mnt/script/My train.py"
    assert command == ["python", "-m", "tfdistr", "kubernetes", "worker", path, *arguments]
    given_to_pods = variables(manifests)
    assert {name: given_to_pods[name] for name in env} == env
    for index in {0, workers - 1}:
        with mock.patch.dict(os.environ, given_to_pods | {"JOB_COMPLETION_INDEX": str(index)}):
            cluster = kubernetes_cluster_from_env()
        if workers == 1:
            assert cluster is None
        else:
            assert cluster is not None
            assert cluster.addresses[index] == f"digits-{index}.digits:2222"
            assert (cluster.worker_index, cluster.num_workers) == (index, workers)


def test_the_objects_of_a_script(script: str) -> None:
    manifests = kubernetes_manifests(
        script, 4, cores_per_worker=2, memory="8Gi", gpus_per_worker=1, volume="claim", run_dir="runs/a",
        max_restarts=3, grace_period=30,
    )  # fmt: skip
    assert [each["kind"] for each in manifests] == ["ConfigMap", "Secret", "Service", "NetworkPolicy", "Job"]
    assert {each["metadata"]["name"] for each in manifests} == {"my-train"}
    config, _, service, _, job = manifests
    assert config["data"] == {"script": "print('à')\n"}
    labels = {"app.kubernetes.io/name": "tfdistr", "app.kubernetes.io/instance": "my-train"}
    assert service["spec"] == {
        "clusterIP": "None", "publishNotReadyAddresses": True, "selector": labels,
        "ports": [{"name": "worker", "port": 2222}],
    }  # fmt: skip
    spec = job["spec"]
    assert (spec["completions"], spec["parallelism"], spec["completionMode"]) == (4, 4, "Indexed")
    assert spec["backoffLimit"] == 3
    assert spec["podFailurePolicy"]["rules"][1]["onExitCodes"]["values"] == [75, 76]
    pod = spec["template"]["spec"]
    assert (pod["subdomain"], pod["terminationGracePeriodSeconds"]) == ("my-train", 30)
    amounts = {"cpu": "2", "memory": "8Gi", "nvidia.com/gpu": "1"}
    assert container(manifests)["resources"] == {"requests": amounts, "limits": amounts}
    assert container(manifests)["image"] == f"tfdistr:{tfdistr.__version__}"
    assert variables(manifests)["TFDISTR_KUBERNETES_RUN_DIR"] == "/mnt/volume/runs/a"
    assert variables(manifests)["OMP_NUM_THREADS"] == "2"
    assert pod["volumes"][1] == {"name": "volume", "persistentVolumeClaim": {"claimName": "claim"}}


def test_the_network_policy_lets_in_only_pods_of_the_same_job(script: str) -> None:
    policy, job = kubernetes_manifests(script, 4, name="digits")[-2:]
    labels = {"app.kubernetes.io/name": "tfdistr", "app.kubernetes.io/instance": "digits"}
    same_job = {"podSelector": {"matchLabels": labels}}
    # No other rule lets anybody in, and the policy is for the pods of this Job.
    assert policy["spec"] == {**same_job, "policyTypes": ["Ingress"], "ingress": [{"from": [same_job]}]}
    assert job["spec"]["template"]["metadata"]["labels"] == labels
    (other,) = kubernetes_manifests(script, 4, name="other")[-1:]
    assert other["spec"]["template"]["metadata"]["labels"] != labels


def test_secrets_are_in_no_object_but_the_secret(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    value = "a$(HOME) $$ =\n\u00e9"
    monkeypatch.setenv("WANDB_API_KEY", value)
    manifests = kubernetes_manifests(
        script, 2, secret_env=["WANDB_API_KEY"], env={"A": "b"}, namespace="team-a"
    )
    for version in VERSIONS:
        kubernetes_validate.validate(manifests[1], version, strict=True)
    assert (manifests[1]["kind"], manifests[1]["type"]) == ("Secret", "Opaque")
    assert manifests[1]["metadata"] == manifests[-1]["metadata"]  # name, labels, and namespace
    assert secrets(manifests)["WANDB_API_KEY"] == value
    assert variables(manifests)["A"] == "b"
    others = json.dumps([each for each in manifests if each["kind"] != "Secret"], ensure_ascii=False)
    assert "HOME" not in others
    assert base64.b64encode(value.encode()).decode() not in others
    assert value not in repr(Pods(script=script, secret_env=["WANDB_API_KEY"]))


def test_the_token_of_the_pods(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN, raising=False)
    made = [kubernetes_manifests(script, 2) for _ in range(2)]
    tokens = {secrets(each)[TOKEN] for each in made}
    assert len(tokens) == 2
    assert {len(token) for token in tokens} == {32}
    for token in tokens:
        assert token not in json.dumps([each[-1] for each in made])
    # Nobody to prove it to; the user's own, also none; that of this process.
    assert [each["kind"] for each in kubernetes_manifests(script, 1)].count("Secret") == 0
    for own in ("text", ""):
        manifests = kubernetes_manifests(script, 2, env={TOKEN: own})
        assert "Secret" not in [each["kind"] for each in manifests]
        assert variables(manifests)[TOKEN] == own
    monkeypatch.setenv(TOKEN, "of this process")
    assert secrets(kubernetes_manifests(script, 2)) == {TOKEN: "of this process"}
    assert secrets(kubernetes_manifests(script, 2, secret_env=[TOKEN])) == {TOKEN: "of this process"}


def test_a_script_that_is_no_utf_8_arrives_byte_for_byte(tmp_path: Path) -> None:
    content = "# -*- coding: latin-1 -*-\nprint('é')\n".encode("latin-1")
    path = tmp_path / "train.py"
    path.write_bytes(content)
    config = kubernetes_manifests(str(path))[0]
    kubernetes_validate.validate(config, VERSIONS[-1], strict=True)
    assert base64.b64decode(config["binaryData"]["script"]) == content


@pytest.mark.parametrize(
    ("path", "name"),
    [("train.py", "train"), ("My train.R", "my-train"), ("2 runs.py", "tfdistr-2-runs"), ("é.py", "tfdistr"),
     ("a" * 90 + ".py", "a" * 40)],
)  # fmt: skip
def test_the_name_of_the_objects(path: str, name: str) -> None:
    assert label_of(path) == name


ERRORS: list[tuple[dict[str, Any], str, str]] = [
    ({"name": "Digits"}, "`name` must be a name of Kubernetes:", "a text ('Digits')"),
    ({"volume": "-a", "run_dir": "a"}, "`volume` must be a name of Kubernetes:", "a text ('-a')"),
    ({"memory": "8 GB"}, "`memory` must be an amount of Kubernetes:", "a text ('8 GB')"),
    ({"image": "my image"}, "`image` must be the name of an image", "a text ('my image')"),
    ({"volume": "claim", "run_dir": "/runs"}, "`run_dir` must be a folder in the", "a text ('/runs')"),
    ({"run_dir": "runs"}, "`volume` and `run_dir` belong together:", "volume=None and run_dir='runs'"),
    ({"env": {"a b": "1"}}, "A name in `env` must be one that", "a b"),
    ({"secret_env": ["A=secret"]}, "A name in `secret_env` must be one", "a text ('A=...')"),
    ({"secret_env": {"A": "secret"}}, "`secret_env` must be a list of names of", "a value of type dict"),
    ({"secret_env": ["NOT_SET"]}, "`secret_env` takes the value of", "an environment without NOT_SET"),
    ({"secret_env": ["OF_OTHER_BYTES"]}, "`secret_env` takes text:", "a value with other bytes"),
    ({"env": {"PATH": "secret"}, "secret_env": ["PATH"]}, "A variable must be in `env` or", "PATH in both"),
    ({"gpus_per_worker": 2}, "Each of several workers trains on one", "gpus_per_worker=2 and workers=2"),
    ({"script": "train.py", "in_image": True}, "A script of the image must be", "a text ('train.py')"),
]


@pytest.mark.parametrize(("options", "rule", "received"), ERRORS)
def test_what_is_refused(
    script: str, options: dict[str, Any], rule: str, received: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_OTHER_BYTES", os.fsdecode(b"\xff"))
    with pytest.raises(tfdistr.ArgumentError) as caught:
        kubernetes_manifests(**{"script": script} | options)
    assert caught.value.message.startswith(rule)
    assert caught.value.received == received


def test_a_script_that_no_config_map_holds(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("#" * 1_000_001)
    with pytest.raises(tfdistr.ArgumentError, match="A script must have at most 1000000 bytes:") as caught:
        kubernetes_manifests(str(path))
    assert caught.value.received == f"{path} with 1000001 bytes"


def test_the_command_writes_a_list_that_kubectl_reads(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tfdistr.cli.main import run

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(TOKEN, "of this process")  # else each call makes its own
    assert run(["kubernetes", "write", "-n", "3", "--env", "A=b", script, "--epochs", "2"]) == 0
    said = capsys.readouterr().out
    assert said == "Written: my-train.json. Start it with: kubectl apply -f my-train.json\n"
    written = json.loads((tmp_path / "my-train.json").read_text())
    assert (tmp_path / "my-train.json").stat().st_mode & 0o777 == 0o600  # it contains secrets
    assert (written["apiVersion"], written["kind"]) == ("v1", "List")
    assert written["items"] == kubernetes_manifests(script, 3, arguments=["--epochs", "2"], env={"A": "b"})
    assert run(["kubernetes", "write", "--output", "-", script]) == 0
    assert json.loads(capsys.readouterr().out)["items"] == kubernetes_manifests(script)
    assert run(["kubernetes", "write", script]) == 2
    assert "Received: my-train.json: File exists" in capsys.readouterr().err.splitlines()[-3:]
    assert run(["kubernetes", "containerfile"]) == 0
    assert "R CMD INSTALL" in (tmp_path / "Containerfile").read_text()
