"""What workers write for their launcher, and how it is read."""

import json
import math
import multiprocessing
import os
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tfdistr.supervision.events import EventReader, EventWriter, events_path
from tfdistr.utils.log_tail import LineReader, Tail, last_lines


def poll_one(folder: Path) -> dict[str, object]:
    (event,) = EventReader(folder, 1).poll()
    return event


def test_an_event_has_its_worker_kind_time_and_fields(tmp_path: Path) -> None:
    before = time.time()
    EventWriter(tmp_path, 1).write("epoch_end", epoch=0, metrics={"loss": 0.25}, seconds=1.5)
    (event,) = EventReader(tmp_path, 2).poll()
    assert before <= event.pop("time") <= time.time()
    assert event == {"worker": 1, "event": "epoch_end", "epoch": 0, "metrics": {"loss": 0.25}, "seconds": 1.5}


def test_a_long_text_is_cut_and_says_where_the_rest_is(tmp_path: Path) -> None:
    text = "begin" + "x" * 10_000_000 + "end"
    EventWriter(tmp_path, 0).write("failed", message=text, traceback="short", peer=False)
    event = poll_one(tmp_path)
    message = str(event["message"])
    assert message.startswith("begin")
    assert message.endswith("end")
    assert "[... 9,990,008 characters are only in the log of this worker ...]" in message
    assert len(message) < 10_100
    assert event["traceback"] == "short"


def test_each_event_is_given_once_and_in_the_order_of_time(tmp_path: Path) -> None:
    writers = [EventWriter(tmp_path, index) for index in range(3)]
    reader = EventReader(tmp_path, 3)
    assert reader.poll() == []
    for index in (2, 0, 1, 0):
        writers[index].write("ready")
        time.sleep(0.002)
    assert [event["worker"] for event in reader.poll()] == [2, 0, 1, 0]
    assert reader.poll() == []
    writers[1].write("done", seconds=1)
    assert [event["event"] for event in reader.poll()] == ["done"]


def test_workers_that_have_no_file_yet_are_no_error(tmp_path: Path) -> None:
    reader = EventReader(tmp_path, 2)
    assert reader.poll() == []
    EventWriter(tmp_path, 1).write("ready")
    assert [event["worker"] for event in reader.poll()] == [1]


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (np.float32(0.5), 0.5),
        (np.float64(2.0), 2.0),
        (ml_dtypes.bfloat16(1.25), 1.25),
        (np.int64(2**60), 2**60),
        (np.bool_(True), True),
        (np.array(3), 3),
        (np.array([[1.0, 2.0]]), [[1.0, 2.0]]),
        ((1, "a", None), [1, "a", None]),
        ({1: np.float32(0.25)}, {"1": 0.25}),
        (Path("a/b"), "a/b"),
        (ValueError("why"), "why"),
        ("é\n\udc80", "é\n\\udc80"),
    ],
)
def test_values_become_what_json_has(tmp_path: Path, value: object, read: object) -> None:
    EventWriter(tmp_path, 0).write("custom", value=value)
    assert poll_one(tmp_path)["value"] == read


def test_metrics_that_are_not_finite_come_back_and_the_file_is_strict_json(tmp_path: Path) -> None:
    metrics = {"loss": math.nan, "up": np.float32(np.inf), "down": -math.inf, "each": np.array([1.0, np.nan])}
    EventWriter(tmp_path, 0).write("batch", metrics=metrics, note="nan")

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    json.loads(events_path(tmp_path, 0).read_text(), parse_constant=refuse)
    event = poll_one(tmp_path)
    read = event["metrics"]
    assert isinstance(read, dict)
    assert math.isnan(read["loss"])
    assert (read["up"], read["down"]) == (math.inf, -math.inf)
    assert read["each"][0] == 1.0
    assert math.isnan(read["each"][1])
    assert event["note"] == "nan"


def test_half_a_line_waits_for_its_end(tmp_path: Path) -> None:
    path = events_path(tmp_path, 0)
    path.parent.mkdir(parents=True)
    reader = EventReader(tmp_path, 1)
    whole = json.dumps({"event": "ready", "time": 1.0}).encode() + b"\n"
    path.write_bytes(whole + whole[:10])
    assert len(reader.poll()) == 1
    assert reader.poll() == []
    with path.open("ab") as file:
        file.write(whole[10:])
    assert [event["event"] for event in reader.poll()] == ["ready"]


def test_lines_that_are_no_events_are_passed_over(tmp_path: Path) -> None:
    path = events_path(tmp_path, 0)
    path.parent.mkdir(parents=True)
    path.write_text('{"event": "rea{"event": 1}\n[1]\n7\n{"time": 1}\n{"event": "ready", "time": 2}\n')
    assert [event["time"] for event in EventReader(tmp_path, 1).poll()] == [2]


def _write_many(folder: Path, number: int) -> None:
    writer = EventWriter(folder, 0)
    for count in range(200):
        writer.write("batch", metrics={"loss": count}, text=str(number) * 5000)


def test_lines_are_whole_when_several_processes_write(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_write_many, args=(tmp_path, number)) for number in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert len(events_path(tmp_path, 0).read_text().splitlines()) == 600
    events = EventReader(tmp_path, 1).poll()
    assert sorted(event["text"] for event in events) == sorted(
        str(n) * 5000 for n in range(3) for _ in range(200)
    )


def test_the_file_is_closed(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    writer = EventWriter(tmp_path, 0)
    writer.write("ready")
    writer.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_tail_gives_whole_lines_and_the_rest_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    tail = Tail(path)
    assert tail.lines(final=True) == []
    path.write_bytes(b"one\ntwo\r\n10%\r100%\ncaf\xe9\nhal")
    assert tail.lines() == ["one", "two", "100%", "caf�"]
    with path.open("ab") as file:
        file.write(b"f")
    assert tail.lines() == []
    assert tail.lines(final=True) == ["half"]
    assert tail.lines(final=True) == []


def test_of_a_line_that_does_not_end_only_the_last_bytes_are_kept() -> None:
    lines = LineReader(longest=5)
    assert lines.take(b"0123456789") == []
    assert lines.take(b"ab\nthis came whole\n") == ["56789ab", "this came whole"]


def test_last_lines_of_a_long_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("".join(f"line {number}\n\n" for number in range(100_000)))
    assert last_lines(path, 2) == ["line 99998", "line 99999"]
    assert last_lines(tmp_path / "none", 2) == []


def test_last_lines_are_not_those_about_cuda(tmp_path: Path) -> None:
    path = tmp_path / "log"
    about = "E0000 00:00:1795953295.859829     788 cuda_platform.cc:52] failed call to cuInit: INTERNAL"
    first = "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR"
    old = (
        "2024-12-25 21:29:38.187942: E external/local_xla/xla/stream_executor/cuda/cuda_fft.cc:477] Unable to"
    )
    path.write_text("\n".join([first, "E0000 of mine", about, old, ""]))
    assert last_lines(path, 2) == ["E0000 of mine"]
