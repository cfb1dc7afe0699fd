"""The command ``tfdistr replay``."""

from __future__ import annotations

import argparse
import runpy
from typing import Any

from tfdistr.errors import ArgumentError

TEXT = """\
Make a step of a run again, in this process, and show its rows, losses, gradients and updates. The script
defines the functions of the run: `model()`, and `data()`, which returns x or (x, y). It may define
`callbacks()`. Its code below `if __name__ == "__main__":` does not run.

  tfdistr replay my_run train.py --step 41233
  tfdistr replay s3://bucket/run train.py --step nan     # the first step that is not finite
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("folder", metavar="RUN", help="the folder or the URL of the run")
    parser.add_argument("script", help="a file of Python that defines model() and data()")
    parser.add_argument("--step", required=True, help='the number of the step, or "nan"')


def run(parsed: argparse.Namespace) -> int:
    """Run the command."""
    from tfdistr.replays.replay import replay

    defined = _functions(parsed.script)
    data = defined["data"]()
    x, *more = data if isinstance(data, tuple) else (data,)
    step = int(parsed.step) if parsed.step.isdecimal() else parsed.step
    callbacks = defined.get("callbacks")
    print(replay(parsed.folder, step, defined["model"], x, *more, callbacks=callbacks), flush=True)
    return 0


def _functions(script: str) -> dict[str, Any]:
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
