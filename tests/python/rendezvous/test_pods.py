"""The cluster that a pod derives from the variables of its manifest and from Kubernetes."""

import os

import pytest
from refusals import assert_says, refusal

import tfdistr
from tfdistr.errors import ClusterConfigError
from tfdistr.rendezvous.meeting import cluster_to_join
from tfdistr.rendezvous.pods import kubernetes_cluster_from_env, place_in_job

POD = {
    "TFDISTR_KUBERNETES_HOSTS": "digits-{index}.digits", "TFDISTR_KUBERNETES_WORKERS": "3",
    "TFDISTR_KUBERNETES_PORT": "2222", "JOB_COMPLETION_INDEX": "1",
}  # fmt: skip
FIX = "Fix: Write the manifests with: tfdistr kubernetes write; or set TF_CONFIG."


@pytest.fixture(autouse=True)
def _pod(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("SLURM_", "PMI_", "TF_CONFIG"))]:
        monkeypatch.delenv(name)
    for name, value in POD.items():
        monkeypatch.setenv(name, value)


def test_a_pod_is_the_worker_of_its_index() -> None:
    config = kubernetes_cluster_from_env()
    assert config is not None
    assert config.addresses == ("digits-0.digits:2222", "digits-1.digits:2222", "digits-2.digits:2222")
    assert (config.worker_index, config.num_workers, config.is_chief) == (1, 3, False)


def test_one_pod_and_other_processes_join_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFDISTR_KUBERNETES_WORKERS", "1")
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "0")
    assert kubernetes_cluster_from_env() is None
    assert place_in_job() == (0, 1)
    monkeypatch.delenv("TFDISTR_KUBERNETES_HOSTS")
    assert kubernetes_cluster_from_env() is None


def test_a_pod_joins_and_knows_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfdistr.strategies.rank._own_strategy", [])
    assert (tfdistr.worker_index(), tfdistr.num_workers(), tfdistr.is_chief()) == (1, 3, False)
    joined = cluster_to_join()
    assert joined
    assert joined.num_workers == 3
    monkeypatch.setenv(
        "TF_CONFIG", '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}'
    )
    joined = cluster_to_join()
    assert joined
    assert joined.addresses == ("a:1",)


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("JOB_COMPLETION_INDEX", "",
         ["The variable JOB_COMPLETION_INDEX of a pod", "Received: a pod without it"]),
        ("TFDISTR_KUBERNETES_WORKERS", "0",
         ["The variable TFDISTR_KUBERNETES_WORKERS of", 'Received: "0"']),
        ("TFDISTR_KUBERNETES_PORT", "http",
         ["The variable TFDISTR_KUBERNETES_PORT of a", 'Received: "http"']),
        ("JOB_COMPLETION_INDEX", "3",
         ["The variable JOB_COMPLETION_INDEX of a pod", "Received: index 3 of 3 workers"]),
        ("TFDISTR_KUBERNETES_HOSTS", "digits",
         ["The variable TFDISTR_KUBERNETES_HOSTS must", 'Received: "digits"']),
    ],
)  # fmt: skip
def test_variables_that_do_not_fit(
    variable: str, value: str, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    assert_says(refusal(ClusterConfigError, kubernetes_cluster_from_env), said)
