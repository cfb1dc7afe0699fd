"""Replays, bisections and verifications for R: columns for data frames, R arrays, and text in R's words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfdistr.r.messages import in_r
from tfdistr.r.values import for_r
from tfdistr.replays.bisect import bisect_kept
from tfdistr.replays.kept_run import open_kept
from tfdistr.replays.replay import RunAgain, replay_step
from tfdistr.replays.result import TABLES, Replay, Table
from tfdistr.replays.verify import verify_kept

# R counts rows from 1.
_FROM_ZERO = {"row", "index", "row_of_file"}


def replay_for_r(
    run: Any, step: Any, model: Any, on_seed: Callable[[int], object], **data: Any
) -> dict[str, Any]:
    """Return the parts of a replay; ``on_seed`` sets the seed of R before the model is made."""
    with open_kept(run) as kept:
        found = replay_step(RunAgain(kept, {"model": model, **data}, on_seed), step)
    known = {name: getattr(found, name) for name in ("run", "step", "epoch", "loss", "difference")}
    return {
        **known,
        **{table: _columns(getattr(found, table)) for table in TABLES},
        "inputs": for_r(found.inputs),
        "weights_before": for_r(found.weights_before),
        "weights_after": for_r(found.weights_after),
        "cause": _cause(found),
        "text": in_r(str(found)).splitlines(),
    }


def bisect_for_r(
    run_a: Any, run_b: Any, on_seed: Callable[[int], object], **arguments: Any
) -> dict[str, Any]:
    """Return the parts of a bisection."""
    with open_kept(run_a) as a, open_kept(run_b) as b:
        found = bisect_kept(a, b, on_seed, **arguments)
    differences = {name: [in_r(str(value)) for value in pair] for name, pair in found.differences.items()}
    confirmed = None if found.confirmed is None else list(found.confirmed)
    return {
        **vars(found), "runs": list(found.runs), "differences": differences, "confirmed": confirmed,
        "rows": _from_one(found.rows), "indices": _from_one(found.indices),
        "text": in_r(str(found)).splitlines(),
    }  # fmt: skip


def verify_for_r(
    run: Any,
    model: Any,
    on_seed: Callable[[int], object],
    *,
    share: Any,
    seed: Any,
    tolerance: Any,
    **data: Any,
) -> dict[str, Any]:
    """Return the parts of a verification."""
    with open_kept(run) as kept:
        given = RunAgain(kept, {"model": model, **data}, on_seed)
        found = verify_kept(given, share=share, seed=seed, tolerance=tolerance)
    return {
        **vars(found), "agrees": found.agrees, "steps": list(found.steps),
        "intervals": _columns([vars(each) for each in found.intervals]),
        "text": in_r(str(found)).splitlines(),
    }  # fmt: skip


def _columns(table: Table) -> dict[str, list[Any]]:
    names = list(table[0]) if table else []
    columns = {name: [row[name] for row in table] for name in names}
    for name in _FROM_ZERO & columns.keys():
        columns[name] = [None if number is None else number + 1 for number in columns[name]]
    return columns


def _from_one(numbers: list[int] | None) -> list[int] | None:
    return None if numbers is None else [number + 1 for number in numbers]


def _cause(found: Replay) -> dict[str, Any] | None:
    if found.cause is None:
        return None
    return {
        **vars(found.cause),
        "rows": _from_one(found.cause.rows),
        "lines": list(map(in_r, found.cause.lines)),
    }
