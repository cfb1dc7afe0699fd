"""Clusters whose workers are sessions of R and of Python, which a user has started by hand."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from row_processes import Session, together
from rows import difference

pytestmark = pytest.mark.timeout(600)

#: Pairs of languages: worker 0 and worker 1.
MIXED = [("r", "python"), ("python", "r")]
ALIKE = [("python", "python"), ("r", "r")]


def job(model: str = "dense", **arguments: Any) -> dict[str, Any]:
    data = {"x": {"named": "images"}, "y": {"named": "labels"}}
    given = {"model": {"named": model}, **data, "epochs": 2, "seed": 3, **arguments}
    return {"call": "distributed_fit", "see": "fit", "arguments": given}


def trained(folder: Path, carrier: str, languages: Sequence[str], row: dict[str, Any]) -> list[Any]:
    """What each worker has at the end of a job."""
    folder = folder / "-".join(languages)
    folder.mkdir(parents=True)
    sessions = [Session(one, row, folder / str(index)) for index, one in enumerate(languages)]
    found = together(carrier, sessions)
    for index, observed in enumerate(found):
        assert "value" in observed, observed
        assert observed["value"].pop("workers") == [index, "done"]
    assert all(one["value"]["history"] == found[0]["value"]["history"] for one in found)
    return found


def test_a_worker_of_each_language(tmp_path: Path) -> None:
    chief, other = trained(tmp_path, "ring", ("r", "python"), job())
    assert difference(chief, other, 0.0) is None


#: The layers that normalize have statistics of each worker: what is compared is the same worker's.
JOBS = {
    "random layers": job("random", validation_split=0.25, callbacks={"named": "callbacks"}),
    "a function": job(x={"named": "pipeline"}, y=None, batch_size=32),
    "own loss of its share of a function": job(
        "own_loss", x={"named": "sharded"}, y=None, batch_size=32, class_weight={"0": 1, "1": 2}
    ),
    "virtual workers": job("random", virtual_workers=4),
}


@pytest.mark.slow(reason="an R session for each worker")
@pytest.mark.parametrize(
    ("name", "carrier", "pairs"),
    [
        ("random layers", "ring", [ALIKE[0], MIXED[0]]), ("a function", "ring", [ALIKE[0], MIXED[1]]),
        ("own loss of its share of a function", "mpi", [ALIKE[0], MIXED[0]]),
        ("virtual workers", "mpi", [ALIKE[1], MIXED[1]]),
    ],
)  # fmt: skip
def test_the_language_of_a_worker_changes_no_bit(
    tmp_path: Path, name: str, carrier: str, pairs: list[Sequence[str]]
) -> None:
    expected, *others = (trained(tmp_path, carrier, pair, JOBS[name]) for pair in pairs)
    for found in others:
        assert difference(expected, found, 0.0) is None


def mismatch(received: str) -> dict[str, str | None]:
    return {
        "class": "JobMismatchError", "cause": None, "message": "All workers must run the same job.",
        "received": received,
        "fix": "Run the same program with the same arguments, data and package versions on every worker.",
    }  # fmt: skip


ADAM = (
    "Adam(learning_rate = 0.01, use_ema = FALSE, ema_momentum = 0.99, beta_1 = 0.9, beta_2 = 0.999, "
    "epsilon = 1e-07, amsgrad = FALSE)"
)
SGD = "SGD(learning_rate = 0.01, use_ema = FALSE, ema_momentum = 0.99, momentum = 0, nesterov = FALSE)"


def test_jobs_that_differ_are_refused_before_the_first_step(tmp_path: Path) -> None:
    """The core's tests have more differences: collectives/test_comparison.py and test_model_parts.py."""
    sessions = [Session("r", job(), tmp_path / "0"), Session("python", job("by_sgd"), tmp_path / "1")]
    errors = [observed["error"] for observed in together("ring", sessions)]
    assert errors == [mismatch(f"optimizer: {ADAM} on worker 0, {SGD} on worker 1")] * 2
