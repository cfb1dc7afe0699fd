"""The workers of a host hold the data once."""

import json
import os
import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from clusters import run_cluster

from tfdistr.data.order.shuffle_order import Order
from tfdistr.data.pipeline.host_cache import HostMemory
from tfdistr.utils.pickles import save_value

pytestmark = pytest.mark.timeout(280)

WORKERS, EXAMPLES, BATCH, SIDE = 3, 301, 32, 100
ARRAYS = np.arange(1_000_000)
SPLIT = 10  # examples of another split, which is kept apart
BYTES = (EXAMPLES + SPLIT) * (SIDE * SIDE + 8 + 1)
PAGES = 64 * 1024  # what a mapping may have beside the data: rounding, and a page for each worker


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> str:
    """The folder of a data set of pictures, each as bright as its number says."""
    import tensorflow_datasets as tfds

    class Pictures(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = tfds.features.FeaturesDict(
                {"image": tfds.features.Image(shape=(SIDE, SIDE, 1)), "label": np.int64}
            )
            return tfds.core.DatasetInfo(builder=self, features=features, supervised_keys=("image", "label"))

        def _split_generators(self, download):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            for i in range(EXAMPLES):
                yield i, {"image": np.full((SIDE, SIDE, 1), i % 256, np.uint8), "label": i}

    folder = str(tmp_path_factory.mktemp("pictures"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("tfds")))
        Pictures(data_dir=folder).download_and_prepare()
    return folder


@dataclass
class Job:
    """What the workers of a job found, and the temporary files that were there after it."""

    found: list[dict[str, Any]]
    batches: list[Any]
    left: list[str]


def run(folder: Path, data_dir: str, limit: int = 0) -> Job:
    save_value((ARRAYS,), folder, "arrays")
    temporary = folder / "tmp"
    temporary.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(temporary))
        arguments = [str(folder), data_dir, str(limit)]
        ended = run_cluster("host_memory.py", WORKERS, arguments, timeout=240)
    found = [folder / f"{index}.json" for index in range(WORKERS)]
    assert all(file.exists() for file in found), ended[0].output[-4000:]
    assert [process.status for process in ended] == [-signal.SIGKILL] * WORKERS
    batches = [dict(np.load(folder / f"{index}.npz")) for index in range(WORKERS)]
    # Those of TensorFlow's AutoGraph, which the end of a process that is not killed removes, are not ours.
    left = [name for name in os.listdir(temporary) if not name.startswith("__autograph")]
    return Job([json.loads(file.read_text()) for file in found], batches, left)


@pytest.fixture(scope="module")
def job(tmp_path_factory, pictures) -> Job:
    return run(tmp_path_factory.mktemp("job"), pictures)


def expected() -> list[np.ndarray]:
    order = Order(EXAMPLES, BATCH, 3, shuffle=True)
    return [order.indices(tf.constant(step, tf.int64)).numpy() for step in range(2 * order.batches)]


def check_batches(job: Job) -> None:
    """The workers' rows, put together, are the global batches of one worker."""
    ends = [np.cumsum(part["rows"]) for part in job.batches]
    rows = [np.split(part["labels"], end[:-1]) for part, end in zip(job.batches, ends, strict=True)]
    global_batches = [np.concatenate(parts) for parts in zip(*rows, strict=True)]
    order = stored_order(global_batches[: len(global_batches) // 2])
    for batch, indices in zip(global_batches, expected(), strict=True):
        np.testing.assert_array_equal(batch, order[indices])
    for part in job.batches:
        assert part["images"].shape[1:] == (SIDE, SIDE, 1)
        assert (part["images"] == (part["labels"] % 256)[:, None, None, None]).all()


def stored_order(batches: list[np.ndarray]) -> np.ndarray:
    """The label at each index, as the first pass tells: files hold the examples in an order of their own."""
    order = np.full(EXAMPLES, -1)
    order[np.concatenate(expected()[: len(batches)])] = np.concatenate(batches)
    assert sorted(order) == list(range(EXAMPLES))
    return order


def test_the_examples_are_in_memory_once(job):
    together = sum(found["pss"]["examples"] for found in job.found)
    assert abs(together - BYTES) <= PAGES  # of each mapping, the system says whole kB
    assert all(found["pss"]["examples"] < BYTES / 2 for found in job.found)


def test_the_arrays_of_a_job_are_in_memory_once(job):
    together = sum(found["pss"]["arrays"] for found in job.found)
    assert abs(together - ARRAYS.nbytes) <= PAGES
    assert [found["total"] for found in job.found] == [ARRAYS.sum()] * WORKERS


def test_each_example_is_decoded_once_over_all_workers(job):
    decoded = sorted(label for found in job.found for label in found["in_pass"])
    assert decoded == list(range(EXAMPLES))
    # The second pass, in another order, took them as they were; some more are those of the other split.
    assert sum(len(found["decoded"]) for found in job.found) <= EXAMPLES + SPLIT


def test_the_batches_are_those_of_one_worker(job):
    check_batches(job)
    assert len({*np.concatenate([part["small"] for part in job.batches])}) == SPLIT
    assert [found["log"] for found in job.found] == [[]] * WORKERS


def test_nothing_is_left_where_all_were_killed(job):
    assert job.left == []
    for found in job.found:
        assert not Path(f"/proc/{found['pid']}").exists()


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
