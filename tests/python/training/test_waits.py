"""The line that says that one worker would have been faster."""

from types import SimpleNamespace

import pytest

from tfdistr.training.reporter import Waits
from tfdistr.utils.warn import WARNINGS


@pytest.fixture
def said(monkeypatch):
    lines: list[str] = []
    monkeypatch.setattr(WARNINGS, "note", lines.append)
    return lines


def collectives(workers: int, seconds: float | None, *, one_host: bool = True) -> SimpleNamespace:
    return SimpleNamespace(num_workers=workers, seconds=seconds, share_a_host=one_host)


def test_workers_that_compute_less_than_one_would_are_told(said):
    peers = collectives(2, 5.0)
    waits = Waits(peers)
    peers.seconds += 60.0
    waits.tell(100.0)
    assert len(said) == 1
    assert "The 2 workers spent 60 % of the time exchanging gradients and waiting for each other." in said[0]


@pytest.mark.parametrize(
    ("peers", "waited", "seconds"),
    [
        (collectives(2, 0.0), 40.0, 100.0),
        (collectives(4, 0.0), 60.0, 100.0),
        (collectives(2, 0.0), 6.0, 9.0),
        (collectives(2, 0.0, one_host=False), 60.0, 100.0),
    ],
    ids=["computes more", "four workers", "a short training", "several hosts"],
)
def test_others_are_not(said, peers, waited, seconds):
    waits = Waits(peers)
    peers.seconds += waited
    waits.tell(seconds)
    assert said == []


def test_nothing_is_said_if_nothing_is_known(said):
    Waits(collectives(2, None)).tell(100.0)
    Waits(None).tell(100.0)
    assert said == []
