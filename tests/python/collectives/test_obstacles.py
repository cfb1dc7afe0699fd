"""Workers of different hosts find out whether they can connect to each other."""

import socket
import threading
import time

import pytest

from tfdistr.collectives.mpi import obstacles
from tfdistr.collectives.mpi.obstacles import Door, OpenDoor, interface, unreached
from tfdistr.network.ports import free_ports


def door(answer: str = "this one", host: str = "127.0.0.1") -> Door:
    return Door(host, free_ports(1)[0], answer)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_an_open_door_is_reached_and_its_port_is_free_at_once_after(host):
    there = door(host=host)
    for _ in range(2):
        opened = OpenDoor(there)
        assert unreached({"worker 1": there}, 5) == ""
        opened.close()


def test_where_nobody_listens():
    there = door()
    why = f"cannot connect to worker 1 at {there}, where nobody listens"
    assert unreached({"worker 1": there}, 5) == why


def test_another_process_at_the_address():
    there = door()
    opened = OpenDoor(there._replace(answer="another"))
    why = f"cannot connect to worker 1 at {there}, where another process listens"
    assert unreached({"worker 1": there}, 5) == why
    opened.close()


def test_one_that_connects_and_says_nothing():
    there = door()
    with socket.create_server((there.host, there.port)):
        began = time.monotonic()
        why = f"cannot connect to worker 1 at {there}, which does not answer"
        assert unreached({"worker 1": there}, 0.3) == why
        assert time.monotonic() - began < 3


def test_strangers_that_stay_keep_nobody_out():
    there = door()
    opened = OpenDoor(there)
    strangers = [socket.create_connection((there.host, there.port)) for _ in range(50)]
    assert unreached({"worker 1": there}, 5) == ""
    for stranger in strangers:
        stranger.close()
    opened.close()
    assert not any(thread.name == "tfdistr-reach" for thread in threading.enumerate())


@pytest.mark.parametrize(
    "value", [3, ["127.0.0.1", 1], ["a.b", 1, "x"], ["127.0.0.1", True, "x"], [1, 1, "x"]]
)
def test_what_is_no_door(value):
    with pytest.raises((ValueError, TypeError)):
        Door.parse(value)


def test_the_address_that_the_hosts_share_is_chosen(monkeypatch):
    monkeypatch.delenv("FI_TCP_IFACE", raising=False)
    monkeypatch.setattr(
        obstacles, "_address_of", {"lo": "127.0.0.1", "in0": "10.0.0.1", "out0": "10.1.0.1"}.get
    )
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(1, "lo"), (2, "in0"), (3, "out0"), (4, "down0")])
    assert interface(["127.0.0.1", "::ffff:10.1.0.1"]) == ("10.1.0.1", "out0")
    assert interface(["127.0.0.1"]) == ("127.0.0.1", "lo")
    assert interface(["fd00::1"]) == ("fd00::1", None)
    monkeypatch.setenv("FI_TCP_IFACE", "in0")
    assert interface(["10.1.0.1"]) == ("10.0.0.1", "in0")
