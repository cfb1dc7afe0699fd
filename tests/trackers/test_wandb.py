"""Weights & Biases, offline, by its own callback: one run, of the chief, with the numbers of the fit."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tfdistr

wandb: Any = pytest.importorskip("wandb", reason="W&B is not installed here: make test-trackers has it")
pytestmark = pytest.mark.timeout(280)

BLOCK = 32768
#: Kinds of pieces with which a record ends: it is whole, or this is its last piece.
ENDS = (1, 4)


def records(path: Path) -> Iterator[Any]:
    """The records in a file of W&B: a head of seven bytes, then a log of LevelDB."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, place, pieces = path.read_bytes(), 7, b""
    while place + 7 <= len(data):
        left = BLOCK - place % BLOCK
        if left < 7:
            place += left
            continue
        size, kind = struct.unpack("<HB", data[place + 4 : place + 7])
        pieces += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in ENDS:
            yield Record.FromString(pieces)
            pieces = b""


def logged(path: Path) -> dict[int, dict[str, Any]]:
    """What was logged, by epoch."""
    rows = []
    for record in records(path):
        if record.WhichOneof("record_type") == "history":
            items = [(item.key or "/".join(item.nested_key), item) for item in record.history.item]
            rows.append({name: json.loads(item.value_json) for name, item in items})
    return {row["epoch/epoch"]: row for row in rows}


def status(path: Path) -> int:
    """The exit status with which the run has ended."""
    (ended,) = [record.exit.exit_code for record in records(path) if record.HasField("exit")]
    return int(ended)


def runs(folder: Path) -> list[Path]:
    """The files of the runs in a folder, in the order of their starts."""
    return sorted(folder.glob("wandb/offline-run-*/run-*.wandb"))


def check(path: Path, history: dict[str, list[float]], epochs: range) -> None:
    """The run has ended well, and has these epochs with the numbers of the history."""
    assert status(path) == 0
    rows = logged(path)
    assert sorted(rows) == list(epochs)
    for epoch in epochs:
        expected = {f"epoch/{name}": values[epoch] for name, values in history.items()}
        expected |= {"epoch/epoch": epoch, "epoch/learning_rate": 1e-3}
        found = {name: value for name, value in rows[epoch].items() if not name.startswith("_")}
        assert found == pytest.approx(expected, rel=1e-6)


def to_folder(folder: str) -> Any:
    def callbacks() -> list[Any]:
        import wandb
        from wandb.integration.keras import WandbMetricsLogger

        import tfdistr

        if not tfdistr.is_chief():
            return []
        wandb.init(project="digits", id="first", resume="allow", mode="offline", dir=folder)
        return [WandbMetricsLogger()]

    return callbacks


def test_the_run_has_the_numbers_of_the_fit(train, tmp_path):
    fit = train(to_folder(str(tmp_path)))
    (run,) = runs(tmp_path)
    check(run, fit.history, range(4))


def test_a_callback_of_a_live_run_is_refused(train, tmp_path):
    from wandb.integration.keras import WandbMetricsLogger

    with (
        wandb.init(project="digits", mode="offline", dir=str(tmp_path)),
        pytest.raises(tfdistr.ArgumentError, match="WandbMetricsLogger in the list `callbacks`"),
    ):
        train([WandbMetricsLogger()])
    wandb.teardown()  # ends its process beside this one
