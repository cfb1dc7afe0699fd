"""A run that one language has begun is resumed by the other: the bits are those of a run without a break."""

from pathlib import Path
from typing import Any

import pytest
from both_process import Both
from row_processes import Session, alone
from rows import difference
from slow import mostly_slow

pytestmark = pytest.mark.timeout(900)

#: The language that begins, and the one that resumes.
PAIRS = [("r", "python"), ("python", "r")]


def job(**arguments: Any) -> dict[str, Any]:
    """A row: ten steps in each of three epochs, with a checkpoint after every four steps."""
    data = {"x": {"named": "images"}, "y": {"named": "labels"}}
    given = {"model": {"named": "random"}, **data, "epochs": 3, "seed": 3, "checkpoint_every": 4, **arguments}
    return {"call": "distributed_fit", "see": "fit", "arguments": given}


def check_same(expected: Any, observed: Any) -> None:
    assert "value" in expected, expected
    assert "value" in observed, observed
    assert difference(expected, observed, 0.0) is None


CASES: dict[str, dict[str, Any]] = {
    "arrays": {"validation_split": 0.25, "validation_freq": [1, 3], "class_weight": {"0": 1, "1": 2}},
    "devices": {"strategy": {"call": "mirrored", "arguments": {"devices": ["cpu:0"]}}},
    "callbacks after whole epochs": {"callbacks": {"named": "callbacks"}, "checkpoint_every": "epoch"},
    # With its own process: this one uses more threads for an operation.
    "virtual workers": {
        "virtual_workers": 2,
        "cluster": {"call": "local_cluster", "arguments": {"workers": 1}},
    },
}  # fmt: skip


# The language that begins takes turns.
# Slow: trains in R and in Python, with workers.
@pytest.mark.parametrize("name", mostly_slow(CASES, quick=["devices"]))
def test_a_run_that_has_ended_goes_on(both: Both, tmp_path: Path, name: str) -> None:
    given = CASES[name]
    begins, resumes = PAIRS[list(CASES).index(name) % 2]
    full = both.ask(job(**given, run_dir=str(tmp_path / "full")), begins)
    run_dir = str(tmp_path / "run")
    begun = both.ask(job(**given | {"epochs": 1}, run_dir=run_dir), begins)
    assert "value" in begun, begun
    check_same(full, both.ask(job(**given, run_dir=run_dir, resume=True), resumes))


@pytest.mark.slow(reason="trains in R and in Python, with workers")
@pytest.mark.parametrize(("begins", "resumes"), PAIRS)
def test_a_run_whose_process_was_killed_within_an_epoch_goes_on(
    both: Both, tmp_path: Path, begins: str, resumes: str
) -> None:
    full = both.ask(job(run_dir=str(tmp_path / "full")), resumes)
    run_dir = str(tmp_path / "run")
    killed = job(run_dir=run_dir, callbacks={"named": "kills_itself"})
    assert alone(Session(begins, killed, tmp_path / "session")) is None
    assert newest(run_dir) == (1, 6)
    check_same(full, both.ask(job(run_dir=run_dir, resume=True), resumes))


def newest(run_dir: str) -> tuple[int, int]:
    """The epoch and the step of the newest checkpoint."""
    names = sorted(path.stem for path in Path(run_dir, "checkpoints").glob("*.checkpoint"))
    epoch, step = names[-1].split("-")
    return int(epoch), int(step)
