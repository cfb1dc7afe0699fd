"""The workers of a host hold the data once."""

import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import pytest

from tfdistr.data.pipeline.host_cache import HostMemory

pytestmark = pytest.mark.timeout(120)


def joined(workers: int) -> list[HostMemory]:
    """The memory as so many workers join it, which are one process here."""
    texts: list[str] = []
    HostMemory.join(lambda text: texts.append(text) or [text])
    return [HostMemory.join(lambda own: [*texts, own]) for _ in range(workers)]


def test_arrays_are_common_and_of_zeros_at_first():
    parts = [((3, 5), np.dtype(np.float32)), ((7,), np.dtype(bool)), ((0, 2), np.dtype(np.int64))]
    memories = joined(2)
    one, other = (memory.arrays(parts) for memory in memories)
    assert [(a.shape, a.dtype) for a in one] == parts
    assert all((a == 0).all() for a in other)
    one[0][1] = 2.5
    one[1][6] = True
    np.testing.assert_array_equal(other[0], one[0])
    np.testing.assert_array_equal(other[1], one[1])
    more = [memory.arrays([((1000,), np.dtype(np.uint8))])[0] for memory in memories]
    more[1][:] = 1
    assert more[0].all()
    assert other[0][1].tolist() == [2.5] * 5


def test_a_worker_in_a_process_of_its_own_has_the_same_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    texts: list[str] = []
    memory = HostMemory.join(lambda text: texts.append(text) or [text])
    (array,) = memory.arrays([((3,), np.dtype(np.float32))])
    program = (
        "import sys; import numpy as np; from tfdistr.data.pipeline.host_cache import HostMemory\n"
        "memory = HostMemory.join(lambda own: [sys.argv[1], own])\n"
        "(array,) = memory.arrays([((3,), np.dtype(np.float32))])\n"
        "array[:] = [1, 2, 3]"
    )
    subprocess.run([sys.executable, "-c", program, texts[0]], check=True, timeout=120)
    assert array.tolist() == [1, 2, 3]
    assert not list(tmp_path.iterdir()), "a killed worker would leave it"


def test_the_lock_keeps_other_workers_out():
    import threading

    one, other = joined(2)
    entered = threading.Event()

    def enter():
        with other.lock():
            entered.set()

    thread = threading.Thread(target=enter)
    with one.lock():
        thread.start()
        assert not entered.wait(0.3)
    assert entered.wait(10)
    thread.join()


def test_a_worker_on_another_host_has_memory_of_its_own(caplog):
    elsewhere = json.dumps(["another host", os.getpid(), 0, 1])
    memory = HostMemory.join(lambda own: [elsewhere, "null", own])
    (array,) = memory.arrays([((4,), np.dtype(np.int64))])
    array[:] = 1
    assert not caplog.messages


def test_a_file_that_is_gone(caplog):
    texts: list[str] = []
    HostMemory.join(lambda text: texts.append(text) or [text])
    host, _, file, number, disk = json.loads(texts[0])
    gone = json.dumps([host, os.getpid(), file, number + 1, disk])
    memory = HostMemory.join(lambda own: [gone, own])
    (array,) = memory.arrays([((4,), np.dtype(np.int64))])
    assert array.flags.owndata
    (message,) = caplog.messages
    assert message.startswith("This worker keeps examples in its own memory")
    assert f"the file of process {os.getpid()} was removed" in message
