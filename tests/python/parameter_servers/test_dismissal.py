"""The chief tells a server that it is no longer needed, also if its call gets the error of another server."""

import socket
import time

import pytest
import tensorflow as tf

from tfdistr.rendezvous.config import Task
from tfdistr.servers import chief


@pytest.fixture
def calls(monkeypatch) -> list[float]:
    """When the server was called: the first two calls fail."""
    made: list[float] = []
    answer = tf.constant(True)

    def stop() -> tf.Tensor:
        made.append(time.monotonic())
        if len(made) < 3:
            raise tf.errors.UnavailableError(None, None, "Connection reset by peer")
        return answer

    monkeypatch.setattr(chief, "_stop", lambda: stop)
    return made


def dismiss(address: str, seconds: float = 30.0) -> None:
    chief._dismiss(Task("worker", 0), address, time.monotonic() + seconds)


@pytest.fixture
def server():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}", listening


def test_a_server_that_is_there_is_told_again(calls, server):
    dismiss(server[0])
    assert len(calls) == 3


def test_a_server_that_is_gone_is_not(calls, server):
    address, listening = server
    listening.close()
    dismiss(address)
    assert len(calls) == 1


def test_but_not_for_ever(calls, server):
    dismiss(server[0], 0.0)
    assert len(calls) == 1
