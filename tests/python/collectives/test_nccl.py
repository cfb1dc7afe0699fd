"""NCCL where each worker has its own GPU: with GPUs that are not there, and a first exchange that fails."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from clusters import Ended, run_cluster

from tfdistr.collectives.nccl import Seen, why_not
from tfdistr.errors import ClusterStartError
from tfdistr.strategies.exact.replica import device_of_rank

pytestmark = pytest.mark.timeout(240)

LIKE_THE_OTHERS = pytest.mark.slow(reason="starts two workers, whose choice other rows cover")
OWN = "The gradients are exchanged with NCCL, because each of the 2 workers has a GPU of its own."
SHARED = (
    "The gradients are exchanged with the ring, because NCCL refuses two workers on one GPU: "
    "worker 0 (127.0.0.1:0) and worker 1 (127.0.0.1:0) share GPU 0000:1B:00.0."
)


def train(folder: Path, what: str) -> list[Ended]:
    return run_cluster("nccl.py", 2, [str(folder), what], timeout=120)


def found(folder: Path) -> list[dict[str, Any]]:
    return [json.loads((folder / f"{index}.json").read_text()) for index in range(2)]


def lines(ended: Ended) -> list[str]:
    return [line for line in ended.output.splitlines() if line.startswith("The gradients")]


@pytest.mark.parametrize(
    ("what", "asked", "expected", "said"),
    [
        ("own", "auto", "nccl", [OWN]),
        pytest.param("own", "ring", "ring", [], marks=LIKE_THE_OTHERS),
        ("shared", "auto", "ring", [SHARED]),
        pytest.param("shared", "nccl", "ring", [SHARED], marks=LIKE_THE_OTHERS),
        ("virtual", "auto", "ring", [
            "The gradients are exchanged with the ring, because virtual workers need sums in a fixed order, "
            "which NCCL does not promise."
        ]),
    ],
)  # fmt: skip
def test_what_is_chosen_and_that_the_chief_says_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, asked: str, expected: str, said: list[str]
) -> None:
    monkeypatch.setenv("COMMUNICATION", asked)
    monkeypatch.delenv("NCCL_DEBUG", raising=False)
    ended = train(tmp_path, what)
    assert [each.status for each in ended] == [0, 0], ended[0].output + ended[1].output
    for each in found(tmp_path):
        assert each == {"communication": expected, "debug": "WARN" if expected == "nccl" else None}
    assert [re.sub(r"\.1:\d+", ".1:0", line) for line in lines(ended[0])] == said
    assert lines(ended[1]) == []


@pytest.mark.parametrize(
    ("what", "cause"),
    [("fails", "NCCL: unhandled system error. Set NCCL_DEBUG=WARN."), ("hangs", r"no connection within 1\d")],
)
def test_a_nccl_that_cannot_connect_ends_the_start(tmp_path: Path, what: str, cause: str) -> None:
    first, second = train(tmp_path, what)
    for each in (first, second):
        assert each.status == 1
        assert each.seconds < 60
        assert "NCCL cannot connect the GPUs of the workers." in each.output
        assert 'strategy=multi_worker_mirrored(communication="ring")' in each.output
    assert re.search(rf"Received: worker 1 \(127.0.0.1:\d+\): {cause}", second.output)


def test_workers_with_and_without_a_gpu(tmp_path: Path) -> None:
    for each in train(tmp_path, "a CPU"):
        assert each.status == 1
        assert "Either all workers must see a GPU, or none." in each.output


NAMES = [f"worker {index}" for index in range(3)]


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        ([Seen("a", []), Seen("b", []), Seen("b", [])], None),
        ([Seen("a", ["1B"]), Seen("b", ["1B"]), Seen("b", ["2B"])], ""),
        ([Seen("a", ["1B"]), Seen("b", ["2B"]), Seen("b", ["2B"])],
         "NCCL refuses two workers on one GPU: worker 1 and worker 2 share GPU 2B"),
    ],
)  # fmt: skip
def test_why_nccl_cannot_connect(seen: list[Seen], why: str | None) -> None:
    assert why_not(NAMES, seen) == why


def test_a_host_without_a_gpu_is_named() -> None:
    with pytest.raises(ClusterStartError) as caught:
        why_not(NAMES, [Seen("a", ["1B"]), Seen("b", []), Seen("b", [])])
    assert str(caught.value).splitlines() == [
        "Either all workers must see a GPU, or none.",
        "Received: worker 1, worker 2 without a GPU, worker 0 with GPU 1B",
        "Fix: See nvidia-smi there, and install tfdistr[gpu]. Or leave the host out, or hide all GPUs: "
        'gpus_per_worker=0, or CUDA_VISIBLE_DEVICES="" for every worker.',
    ]


def test_a_rank_of_mpi_computes_on_its_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: ["a GPU"])
    assert device_of_rank() == "/device:GPU:0"
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: [])
    assert device_of_rank() == "/device:CPU:0"
