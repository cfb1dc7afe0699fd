"""What the user sees of a job's progress."""

import builtins
import errno
import math
import os
import re
import threading
import warnings
from collections.abc import Iterable
from io import StringIO
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from tfdistr.errors import ArgumentError, TfdistrWarning
from tfdistr.jobs import display as displays
from tfdistr.jobs import progress
from tfdistr.jobs.progress import make_display


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def event(kind: str, worker: int | None = 0, **fields: Any) -> dict[str, Any]:
    return {"event": kind, "worker": worker, "time": 0.0, **fields}


def training(epochs: int = 2, steps: Any = 3, workers: Iterable[int] = (0,)) -> list[dict[str, Any]]:
    """The events of a job, as the launcher passes them on: only the chief reports batches."""
    workers = list(workers)
    events = [event(kind, worker) for kind in ("started", "ready") for worker in workers]
    events += [event("train_begin", worker, epochs=epochs, steps=steps) for worker in workers]
    events += [event("failed", 1, message="x"), event("custom", 1, value=1)]  # kinds that it passes over
    for epoch in range(epochs):
        events += [event("epoch_begin", worker, epoch=epoch) for worker in workers]
        events += [
            event("batch", epoch=epoch, step=step, steps=steps, metrics={"loss": 1 / step})
            for step in (1, 2, 3)
        ]
        events += [
            event("epoch_end", worker, epoch=epoch, metrics={"loss": 0.25, "val_loss": 0.5}, seconds=1.26)
            for worker in workers
        ]
    return [*events, *(event("done", worker, seconds=3.0) for worker in workers)]


def show(verbose: Any, events: Iterable[dict[str, Any]], terminal: bool = True, **options: Any) -> str:
    """What a display writes, drawn anew after every event as the clock would."""
    file = Terminal() if terminal else StringIO()
    console = Console(file=file, force_terminal=terminal, width=100, **options)
    display = make_display(verbose, console)
    for one in events:
        display.event(one)
        if isinstance(display, displays.Bar):
            display._screen._progress.refresh()
    display.close()
    display.close()
    return file.getvalue()


def plain(text: str) -> str:
    """Without colours and movements of the cursor; what was written over is on lines of its own."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.replace("\r", "\n"))


EPOCHS = [
    "Epoch 1/2  1.3 s  loss: 0.2500  val_loss: 0.5000",
    "Epoch 2/2  1.3 s  loss: 0.2500  val_loss: 0.5000",
]


@pytest.mark.parametrize("verbose", [2, 2.0])
@pytest.mark.parametrize("terminal", [True, False])
def test_2_is_one_line_an_epoch(verbose: Any, terminal: bool) -> None:
    assert plain(show(verbose, training(), terminal)).splitlines() == EPOCHS


@pytest.mark.parametrize("verbose", [0, 0.0, False])
def test_0_is_silent(verbose: Any) -> None:
    assert show(verbose, training()) == ""


def test_auto_is_lines_of_the_chief_when_nobody_watches_and_a_bar_in_a_terminal() -> None:
    assert plain(show("auto", training(), terminal=False)).splitlines() == EPOCHS
    of_worker_1 = [event | {"worker": 1} for event in training()]
    assert show("auto", of_worker_1, terminal=False) == ""
    assert plain(show(2, of_worker_1, terminal=False)).splitlines() == EPOCHS
    assert "━" in show("auto", training(), terminal=True)


@pytest.mark.parametrize("verbose", [1, 1.0])
def test_1_shows_each_epoch_and_batch_with_metrics_and_leaves_a_line_for_each_epoch(verbose: Any) -> None:
    written = show(verbose, training())
    lines = plain(written).splitlines()
    assert any(line.startswith("Starting the workers ━") for line in lines)
    for epoch in (1, 2):
        for step in (1, 2, 3):
            pattern = rf"Epoch {epoch}/2 ━+[╺╸]?━* {step}/3 +[0-9:-]+ loss: {1 / step:.4f} *"
            assert any(re.fullmatch(pattern, line) for line in lines), (pattern, lines)
    assert [line.rstrip() for line in lines if "val_loss" in line] == EPOCHS
    assert on_screen(written) == EPOCHS


def on_screen(written: str) -> list[str]:
    """The lines that a terminal shows in the end: what it was told to erase is gone."""
    lines, row = [""], 0
    for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", written):
        if part == "\n":
            row += 1
            lines += [""] * (row - len(lines) + 1)
        elif part == "\x1b[2K":
            lines[row] = ""
        elif part.endswith("A") and part.startswith("\x1b"):
            row -= int(part[2:-1])
        elif part == "\r":
            pass  # rich erases the line next
        elif not part.startswith("\x1b"):
            lines[row] += part
    return [line.rstrip() for line in lines if line.strip()]


@pytest.mark.parametrize("terminal", [True, False])
def test_where_no_bar_can_be_drawn_1_is_the_lines(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert plain(show(1, training(), terminal)).splitlines() == EPOCHS


class ZMQInteractiveShell:
    """What IPython calls the shell of a notebook's kernel; rich looks at the name."""


@pytest.mark.parametrize("widgets", [True, False])
def test_in_a_notebook_auto_shows_a_bar_or_lines(widgets: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtins, "get_ipython", ZMQInteractiveShell, raising=False)
    monkeypatch.setattr(progress, "find_spec", lambda name: object() if widgets else None)
    display = make_display("auto", Console(file=StringIO(), force_jupyter=True))
    assert type(display) is (displays.Bar if widgets else displays.LineDisplay)


def test_in_a_notebook_no_thread_draws_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """The widget of the bar takes what is printed while it is drawn: the line of an epoch could vanish."""
    monkeypatch.setattr(builtins, "get_ipython", ZMQInteractiveShell, raising=False)
    monkeypatch.setattr("rich.jupyter.display", lambda segments, text: None)
    display = make_display(1, Console(file=StringIO(), force_jupyter=True))
    assert isinstance(display, displays.Bar)
    drawn: list[str] = []
    monkeypatch.setattr(display._screen._progress.live, "refresh", lambda: drawn.append("drawn"))
    threads = threading.enumerate()
    for one in training(epochs=1):
        before = len(drawn)
        display.event(one)
        assert len(drawn) > before or one["event"] not in ("epoch_begin", "batch"), one
    assert threading.enumerate() == threads
    display.close()


def test_steps_may_be_unknown() -> None:
    lines = plain(show(1, training(steps=None))).splitlines()
    assert any(re.match(r"Epoch 1/2 ━+ 2/\? ", line) for line in lines)
    assert [line.rstrip() for line in lines if "val_loss" in line] == EPOCHS


def test_numbers_may_come_as_r_sends_them() -> None:
    events = [
        event("train_begin", epochs=2.0, steps=4.0),
        event("epoch_begin", epoch=1.0),
        event("batch", epoch=1.0, step=2.0, steps=4.0, metrics={"out[bold]": 1.0}),
        event("epoch_end", epoch=1.0, metrics={"loss": 1.0}, seconds=2.0),
    ]
    text = plain(show(1, events))
    assert "2/4" in text
    assert "out[bold]: 1.0000" in text
    assert "Epoch 2/2  2.0 s  loss: 1.0000" in text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.12345, "0.1235"),
        (0.00001234, "1.234e-05"),
        (-1234.5, "-1234.5000"),
        (math.nan, "nan"),
        ([0.5, 0.25], "[0.5, 0.25]"),
    ],
)
def test_metrics_of_any_size(value: Any, shown: str) -> None:
    events = [
        event("train_begin", epochs=1, steps=1),
        event("epoch_end", epoch=0, metrics={"out[0]_x": value}, seconds=0.0),
    ]
    assert plain(show(2, events)) == f"Epoch 1/1  0.0 s  out[0]_x: {shown}\n"


def test_many_metrics_are_one_line_of_the_bar() -> None:
    metrics = {f"metric_{number}": 0.5 for number in range(20)}
    events = [
        event("train_begin", epochs=1, steps=2),
        event("epoch_begin", epoch=0),
        event("batch", epoch=0, step=1, steps=2, metrics=metrics),
    ]
    lines = plain(show(1, events)).splitlines()
    (line,) = {line.rstrip() for line in lines if "metric_" in line}
    assert len(line) <= 100
    assert line.endswith("…")
    text = plain(show(2, [*events, event("epoch_end", epoch=0, metrics=metrics, seconds=1.0)]))
    assert len(text.splitlines()) == 1  # the lines that stay are whole
    assert "metric_19: 0.5000" in text


def test_the_chief_is_shown_whoever_comes_first() -> None:
    events = sorted(training(workers=(0, 1, 2)), key=lambda one: one["event"] == "train_begin", reverse=True)
    events = [*reversed(events[:3]), *events[3:]]
    assert [one["worker"] for one in events[:3]] == [2, 1, 0]
    assert plain(show(2, events)).splitlines() == EPOCHS
    assert on_screen(show(1, events)) == EPOCHS


@pytest.mark.parametrize("verbose", [0, 1, 2])
def test_the_lines_of_workers_are_shown_with_their_worker(verbose: int) -> None:
    events = training()
    line = "\x1b[31mloading\x1b[0m [bold]x " + "y" * 120
    events[4:4] = [event("log", 1, line=line), event("log", None, line="all of them")]
    lines = plain(show(verbose, events)).splitlines()
    assert "[worker 1] loading [bold]x " + "y" * 120 in lines
    assert "all of them" in lines


def test_colours_of_the_workers_are_kept_in_a_terminal_alone() -> None:
    events = [event("log", 1, line="\x1b[31mred\x1b[0m")]
    assert "\x1b[31mred\x1b[0m" in show(0, events)
    assert show(0, events, terminal=False) == "[worker 1] red\n"


@pytest.mark.parametrize("verbose", [1, 2])
def test_a_restart_is_said_and_the_new_workers_are_shown(verbose: int) -> None:
    events = [*training()[:5], event("restart", 1, reason="port in use"), *training()]
    assert on_screen(show(verbose, events)) == ["Starting the workers again: port in use.", *EPOCHS]


def test_the_bar_is_away_while_a_function_of_the_session_runs() -> None:
    display = make_display(1, Console(file=Terminal(), force_terminal=True, width=100))
    drawn = []
    first = training()[: training().index(event("epoch_begin", epoch=1))]
    for one in [*first, event("in_session", epoch=0, metrics={"loss": 0.25}), event("epoch_begin", epoch=1)]:
        display.event(one)
        drawn.append(display._screen._progress.live.is_started)  # type: ignore[attr-defined]
    display.close()
    assert drawn[-3:] == [True, False, True]


@pytest.mark.parametrize("verbose", ["", "1", "yes", 3, -1, 0.5, None, math.nan, [1], np.array([1, 2])])
def test_other_values_of_verbose_are_refused(verbose: Any) -> None:
    with pytest.raises(ArgumentError, match=r'`verbose` must be "auto", 0, 1 or 2\.') as caught:
        make_display(verbose)
    assert caught.value.received == f"{verbose!r}"


@pytest.mark.parametrize("verbose", [0, 1, 2])
def test_a_warning_is_given_once_though_all_workers_have_it(verbose: int) -> None:
    events = [*training()[:5], *(event("warning", worker, message="no [bold] number") for worker in (1, 0))]
    events += [event("warning", 1, message="another", of_user=True), *training()[5:]]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        show(verbose, events)
    assert [str(one.message) for one in caught] == ["no [bold] number", "Worker 1: another"]
    assert [(one.category, one.filename) for one in caught] == [(TfdistrWarning, __file__)] * 2


@pytest.mark.parametrize("verbose", [0, 1, 2])
def test_a_note_of_all_workers_is_a_line_as_often_as_one_of_them_sends_it(verbose: int) -> None:
    events = [event("note", worker, message="Random numbers differ.") for worker in (1, 0, 1)]
    assert plain(show(verbose, events)).splitlines().count("Random numbers differ.") == 2


def test_an_output_on_a_full_disk_ends_no_job():
    class Full(StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    display = make_display(2, Console(file=Full()))
    with pytest.warns(TfdistrWarning, match="Cannot show progress: No space left on device") as told:
        list(map(display.event, training()))
    assert len(told) == 1
