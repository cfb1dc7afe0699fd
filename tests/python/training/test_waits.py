"""The line that says that one worker would have been faster."""

from types import SimpleNamespace

import pytest

from tfdistr.training.reporter import warn_if_slower_than_one
from tfdistr.utils.warn import WARNINGS


@pytest.fixture
def said(monkeypatch):
    lines: list[str] = []
    monkeypatch.setattr(WARNINGS, "note", lines.append)
    return lines


def collectives(workers: int, *, one_host: bool = True) -> SimpleNamespace:
    return SimpleNamespace(num_workers=workers, share_a_host=one_host)


def times(exchanging: float, seconds: float = 100.0, **others: float) -> dict[str, float]:
    """The times of a worker whose training took so many seconds after its start of 50."""
    computing = seconds - exchanging - sum(others.values())
    return {"computing": computing, "exchanging": exchanging, "start": 50.0, **others}


def test_workers_that_compute_less_than_one_would_are_told(said):
    warn_if_slower_than_one(times(20.0, waiting_for_peers=40.0), collectives(2))
    assert len(said) == 1
    assert "The 2 workers spent 60 % of the time exchanging gradients and waiting for each other." in said[0]


@pytest.mark.parametrize(
    ("peers", "waited", "seconds"),
    [
        (collectives(2), 40.0, 100.0),
        (collectives(4), 60.0, 100.0),
        (collectives(2), 6.0, 9.0),
        (collectives(2, one_host=False), 60.0, 100.0),
    ],
    ids=["computes more", "four workers", "a short training", "several hosts"],
)
def test_others_are_not(said, peers, waited, seconds):
    warn_if_slower_than_one(times(waited, seconds), peers)
    assert said == []


def test_nothing_is_said_if_nothing_is_known(said):
    warn_if_slower_than_one({"computing": 90.0, "start": 10.0}, collectives(2))
    warn_if_slower_than_one(times(60.0), None)
    assert said == []
