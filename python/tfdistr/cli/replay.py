"""The commands ``tfdistr replay`` and ``tfdistr verify``."""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path
from typing import Any

from tfdistr.errors import ArgumentError

TEXT = """\
Make a step of a run again, in this process, and show its rows, losses, gradients and updates. The script
defines the functions of the run: `model()`, and `data()`, which returns x, (x, y) or (x, y, sample_weight).
It may define `callbacks()` and `validation_data()`. Its code below `if __name__ == "__main__":` does not run.

  tfdistr replay my_run train.py --step 41233
  tfdistr replay s3://bucket/run train.py --step nan     # the first step that is not finite
"""

#: The description of ``tfdistr verify``.
TEXT_OF_VERIFY = """\
Check that the kept files of a run are those of its training: that its checkpoints chain, and that the steps
between them give the same numbers again, in this process. The exit status is 0 if they do, and 1 if not. The
script is as that of `tfdistr replay`. This is no proof against somebody who owns all files.

  tfdistr verify my_run train.py
  tfdistr verify s3://bucket/run train.py --share 0.1    # a tenth of the intervals, and always the last one
"""

#: What ``data()`` of a script returns.
_PARTS = ("x", "y", "sample_weight")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``tfdistr replay``."""
    _add_run(parser)
    parser.add_argument("--step", required=True, help='the number of the step, or "nan"')


def add_arguments_of_verify(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``tfdistr verify``."""
    _add_run(parser)
    parser.add_argument("--share", type=float, help="the share of the intervals to recompute; default: 1")
    parser.add_argument("--seed", type=int, help="the seed of their draw")


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="RUN", help="the folder or the URL of the run")
    parser.add_argument("script", help="a file of Python that defines model() and data()")


def run(parsed: argparse.Namespace) -> int:
    """Run ``tfdistr replay``."""
    from tfdistr.replays.replay import replay

    step = int(parsed.step) if parsed.step.isdecimal() else parsed.step
    print(replay(parsed.folder, step, **_of_run(parsed.script)), flush=True)
    return 0


def run_verify(parsed: argparse.Namespace) -> int:
    """Run ``tfdistr verify``."""
    from tfdistr.replays.verify import verify

    options = {name: value for name, value in vars(parsed).items() if name in ("share", "seed")}
    found = verify(parsed.folder, **_of_run(parsed.script), **options)
    print(found, flush=True)
    return 0 if found.agrees else 1


def _of_run(script: str) -> dict[str, Any]:
    """Return the model function, the data and the callbacks that a script defines."""
    defined = _functions(script)
    data = defined["data"]()
    given = data if isinstance(data, tuple) else (data,)
    if not 1 <= len(given) <= len(_PARTS):
        raise ArgumentError(
            "data() must return x, (x, y) or (x, y, sample_weight).",
            received=f"a tuple of {len(given)} parts",
            fix="Return validation data from a function validation_data().",
        )
    validation = defined.get("validation_data")
    return {
        "model": defined["model"], **dict(zip(_PARTS, given, strict=False)),
        "validation_data": validation() if callable(validation) else validation,
        "callbacks": defined.get("callbacks"),
    }  # fmt: skip


def _functions(script: str) -> dict[str, Any]:
    sys.path.insert(0, str(Path(script).parent))  # for the modules beside it, as Python does
    try:
        defined = runpy.run_path(script, run_name="tfdistr_replay")
    except OSError as error:
        raise ArgumentError(
            "The script must be a file of Python that this process can read.",
            received=f"{script}: {error.strerror}",
            fix="Pass the script with which the run was trained.",
        ) from error
    missing = [name for name in ("model", "data") if not callable(defined.get(name))]
    if missing:
        raise ArgumentError(
            "The script of a replay must define the functions model() and data().",
            received=f"{script} without {' and '.join(f'{name}()' for name in missing)}",
            fix="Define model(), which returns the compiled model, and data(), which returns (x, y).",
        )
    return defined
