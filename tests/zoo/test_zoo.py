"""Ten models of `make zoo`, and compiled tasks of keras-hub on workers. `make zoo` has all models."""

import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import tfdistr
from tfdistr.training.model_copies.given_model import as_model_factory

keras_hub = pytest.importorskip("keras_hub", reason="tools/setup-beside.sh zoo makes an environment with it")
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "equality")]
import matrix  # noqa: E402
import zoo_cases  # noqa: E402, F401
from case import CASES  # noqa: E402

pytestmark = pytest.mark.timeout(1500)

TEN = (
    "dlrm", "two_towers", "sasrec", "bert_classifier", "gpt2_causal_lm", "bart_seq_2_seq_lm",
    "resnet_classifier", "retinanet", "segformer", "mobilenet_v2",
)  # fmt: skip


@pytest.fixture(scope="module")
def rows() -> dict[str, matrix.Row]:
    pairs = [("distributed_fit", name) for name in TEN]
    made = matrix.run_matrix(pairs, (2,), virtual=2, limit=400.0, cases="zoo_cases")
    return {row.case: row for row in made}


@pytest.mark.parametrize("name", TEN)
def test_two_workers_give_the_bits_of_one(rows: dict[str, matrix.Row], name: str) -> None:
    row = rows[name]
    assert row.status == "ok", row.failure.details if row.failure else matrix.table([row])


def train(model: Any, name: str, workers: int) -> tfdistr.FitResult:
    x, y, *weight = CASES[name].data
    return tfdistr.distributed_fit(
        model, x, y, sample_weight=weight[0] if weight else None, cluster=tfdistr.local_cluster(workers),
        virtual_workers=2, batch_size=4, epochs=2, seed=1, verbose=0,
    )  # fmt: skip


def bits(model: keras.Model) -> list[bytes]:
    return [np.asarray(value).tobytes() for value in (*model.get_weights(), *model.optimizer.variables)]


@pytest.mark.parametrize("name", ["bert_classifier", "gpt2_causal_lm", "retinanet"])
def test_a_compiled_task_of_keras_hub_trains_on_workers(name: str) -> None:
    model = CASES[name].model()
    expected = train(as_model_factory(model), name, 1)
    assert train(model, name, 2).model is model
    assert bits(model) == bits(expected.model)
    assert int(model.optimizer.iterations) == 6


def test_a_sampler_reaches_the_copies() -> None:
    model = CASES["gpt2_causal_lm"].model()
    model.compile(sampler=keras_hub.samplers.TopKSampler(k=3))
    assert as_model_factory(model)().sampler.k == 3


def test_a_loss_of_a_detector_that_is_a_lambda_is_named() -> None:
    model = CASES["retinanet"].model()
    model.compile(box_loss=lambda y, p: y - p)
    with pytest.raises(tfdistr.ArgumentError, match=r"`loss` of Detector.compile\(\): a lambda"):
        as_model_factory(model)
