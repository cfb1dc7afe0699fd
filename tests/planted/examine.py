"""Trains the runs of a case, and examines them in this process."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
from case import NOTHING, Case, Found
from plants import AtStep, kills_once

import tfdistr


def train(folder: Path, given: Mapping[str, Any], **changed: Any) -> None:
    """Train a run. Its workers are processes, if they are more than one, or if it asks for a cluster."""
    known = {**given, **changed}
    workers, kill = known.pop("workers"), known.pop("kill", None)
    if kill:
        killer = AtStep(kill, kills_once(folder.with_suffix(".killed")))
        known["callbacks"] = [tfdistr.chief_only(killer)]
    if known.pop("in_cluster", False) or workers > 1:
        known["cluster"] = tfdistr.local_cluster(workers)
    keras.utils.clear_session()
    tfdistr.distributed_fit(**known, run_dir=folder, verbose=0)


class Runs:
    """The runs of the table. A healthy run is trained once for all cases that need it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._healthy: dict[str, Path] = {}

    def healthy(self, case: Case) -> Path:
        """Return the run of a case without its fault."""
        key = repr((case.net, case.workers, case.virtual, case.both))
        if key not in self._healthy:
            self._healthy[key] = self._new()
            train(self._healthy[key], case.arguments(other=False))
        return self._healthy[key]

    def faulty(self, case: Case) -> Path:
        """Return the run of a case with its fault."""
        run, given = self._new(), case.arguments(other=True)
        if case.resumed:
            train(run, given, epochs=1)
            if case.after:
                case.after(run)
            train(run, given, resume=True)
        else:
            train(run, given)
            if case.after:
                case.after(run)
        return run

    def _new(self) -> Path:
        return self._folder / f"run-{len(list(self._folder.iterdir())):03d}"


def examine(case: Case, runs: Runs) -> Found:
    """Train the runs of a case, and return what is found in them."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            found = _WAYS[case.by](case, runs)
        except tfdistr.TfdistrError as error:
            text = str(error)
        else:
            if found is not None:
                return found
            text = "\n".join(str(each.message) for each in said)
    return _said(case, text)


def _said(case: Case, text: str) -> Found:
    """Return the words that a message must have, if it has them."""
    match = re.search(case.finds.reason or "$.", text, re.DOTALL)
    if match is None:
        raise RuntimeError(f"{case.by}: {text}")
    return Found(None, match[0])


def _data(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: given.get(name) for name in ("x", "y", "sample_weight", "callbacks")}


def _nan(case: Case, runs: Runs) -> Found:
    given = case.arguments(other=True)
    again = tfdistr.replay(runs.faulty(case), "nan", given["model"], **_data(given))
    cause = again.cause
    assert cause is not None
    rows = [again.rows[row]["index"] for row in cause.rows or []]
    layer = cause.layer and cause.layer.rstrip("_0123456789")
    reason = ": ".join(filter(None, (cause.where, cause.operation)))
    odd = "" if again.difference <= 1e-3 else "b"
    return Found(again.step, reason, layer, rows[0] if len(rows) == 1 else None, odd)


def _bisect(case: Case, runs: Runs) -> Found:
    return _compared(case, runs.healthy(case), runs.faulty(case))


def _compared(case: Case, a: Path, b: Path) -> Found:
    one, other = case.arguments(other=False), case.arguments(other=True)
    known: dict[str, Any] = {}
    if "model" in case.knows:
        known["model_b"] = other["model"]
    if "data" in case.knows:
        known |= {"x_b": other["x"], "y_b": other["y"]}
    if "callbacks" in case.knows:
        known["callbacks_b"] = other["callbacks"]
    found = tfdistr.bisect(a, b, one["model"], **_data(one), **known, **case.examined)
    names = [layer.name for layer in one["model"]().layers]
    layer = next((name for name in names if re.search(rf"\b{name}\b", found.tensor or "")), None)
    if found.reason in ("kernel", "learning rate", "settings"):  # all of the model
        layer = None
    confirmed = found.confirmed or (True, True)
    odd = "".join(name for name, gives in zip("ab", confirmed, strict=True) if not gives)
    rows = found.indices or found.rows or []
    return Found(found.step, found.reason, layer, rows[0] if len(rows) == 1 else None, odd)


def _pair(case: Case, runs: Runs) -> Found:
    """Bisect a healthy pair, and replay its last step."""
    run, other = runs.faulty(case), case.arguments(other=True)
    found = _compared(case, runs.healthy(case), run)
    if found == NOTHING:
        again = tfdistr.replay(run, 24, other["model"], **_data(other))
        assert again.difference <= (0.0 if other["virtual_workers"] or other["workers"] == 1 else 1e-3)
        assert again.cause is None
    return found


def _replay(case: Case, runs: Runs) -> Found | None:
    given = case.arguments(other="data" in case.knows)
    again = tfdistr.replay(runs.faulty(case), 24, given["model"], **_data(given))
    assert again.difference == 0.0
    return None


def _verify(case: Case, runs: Runs) -> Found:
    """Verify the whole run: the first steps that differ, or what does not chain."""
    given = case.arguments(other=True)
    found = tfdistr.verify(runs.faulty(case), given["model"], given["x"], given["y"], share=1.0)
    odd = next((each for each in found.intervals if each.agrees is False), None)
    if odd is not None:
        return Found(odd.step, f"steps {odd.first_step} to {odd.last_step} differ")
    return _said(case, found.chain[0]) if found.chain else NOTHING


def _training(case: Case, runs: Runs) -> None:
    runs.faulty(case)


_WAYS = {"nan": _nan, "bisect": _bisect, "pair": _pair, "replay": _replay, "training": _training,
         "verify": _verify}  # fmt: skip
