"""Arrays on their way into another process: the file has their rows, and nothing is copied before."""

import re
import tracemalloc

import numpy as np
import pytest

from tfdistr.data.source import make_source
from tfdistr.errors import CheckpointError
from tfdistr.utils.disk import is_full, refuse_file
from tfdistr.utils.pickles import load_value, save_value

ARRAYS = {
    "of R": np.asfortranarray(np.arange(24.0).reshape(2, 3, 4)),
    "part of one of R": np.asfortranarray(np.arange(24).reshape(6, 4))[1:4],
    "every second row": np.arange(24).reshape(6, 4)[::2, 1:3],
    "backwards": np.arange(6.0)[::-1],
    "of logical values": np.asfortranarray(np.eye(3) > 0),
    "of text": np.asfortranarray(np.array([["a", "b"], ["c", "d"]])),
    "of objects": np.array(["é", "long " * 10, b"b"], object),
    "empty": np.asfortranarray(np.zeros((0, 3))),
    "without columns": np.zeros((4, 6), np.int32)[::2, :0],
    "of rows": np.arange(6).reshape(2, 3),
}


def test_arrays_of_any_order_arrive_in_rows(tmp_path):
    save_value([ARRAYS, ARRAYS["of R"]], tmp_path, "value")
    arrived, again = load_value(tmp_path, "value")
    assert again is arrived["of R"]
    for name, array in ARRAYS.items():
        made = arrived[name]
        assert (made.dtype, made.shape, made.tolist()) == (array.dtype, array.shape, array.tolist()), name
        assert made.flags.c_contiguous, name


def test_a_change_of_an_array_stays_in_the_process(tmp_path):
    fixed = np.arange(3)
    fixed.flags.writeable = False
    save_value([np.arange(6), np.asfortranarray(np.eye(3)), fixed], tmp_path, "value")
    for _ in range(2):
        rows, of_r, arrived = load_value(tmp_path, "value")
        assert [rows.sum(), of_r.sum()] == [15, 3]
        rows += 1
        of_r[:] = 0
        assert not arrived.flags.writeable


@pytest.mark.parametrize("order", ["C", "F"])
def test_nothing_is_copied_before_the_file(tmp_path, order):
    rows = np.asarray(np.ones((2**18, 16)), order=order)  # 32 MiB
    tracemalloc.start()
    source = make_source(rows, rows[:, 0])
    save_value(source, tmp_path, "value")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < rows.nbytes / 4
    written = (tmp_path / "value.buffers").stat().st_size
    assert 0 <= written - rows.nbytes - rows[:, 0].nbytes < 2**12
    arrived = load_value(tmp_path, "value")
    assert all(part.flags.c_contiguous for part in arrived.parts)


def test_a_process_that_reads_rows_copies_them_once():
    rows = np.asfortranarray(np.ones((2**18, 16)))
    source = make_source(rows)
    tracemalloc.start()
    (made,) = source.by_rows
    assert source.by_rows[0] is made
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert made.flags.c_contiguous
    assert rows.nbytes <= most < 1.1 * rows.nbytes


@pytest.mark.parametrize("kilobytes", [0, 2000])
def test_a_value_that_a_full_disk_refuses(small_disk, kilobytes):
    if not kilobytes:
        small_disk.fill()
    value = [np.zeros(kilobytes << 10, np.uint8), "text"]
    with pytest.raises(CheckpointError) as caught:
        save_value(value, small_disk.path, "job")
    assert caught.value.message == "A file for the workers could not be written: No space left on device."
    path = small_disk.path / ("job.buffers" if kilobytes else "job.pkl")
    needed, _ = re.findall(r"([\d,]+) bytes", caught.value.received)
    assert caught.value.received.startswith(f"{path}, which needs ")
    assert int(needed.replace(",", "")) >= kilobytes << 10
    assert caught.value.fix == "Make room, or name a `run_dir` on another disk."
    assert not path.exists()


def test_a_value_that_a_full_disk_refuses_to_r(small_disk):
    path = small_disk.path / "job.rds"
    path.touch()
    with pytest.raises(CheckpointError, match="could not be written: error writing to connection") as caught:
        refuse_file(str(path), "error writing to connection")
    assert caught.value.received.startswith(f"{path}, and ")
    assert not path.exists()
    assert not is_full("/")
