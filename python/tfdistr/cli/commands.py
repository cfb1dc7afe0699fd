"""The commands ``tfdistr run`` and ``tfdistr test``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from tfdistr.cli.flags import add_flags, given, read_config
from tfdistr.cli.script_options import Script, Workers
from tfdistr.clusters.environment import check_env
from tfdistr.errors import STOPPED_STATUS, ArgumentError, JobStoppedError, WorkerFailedError

_RUN = """\
Start a script of Python or R as the workers of a cluster. Inside, distributed_fit() without `cluster` and the
strategies train on all workers. Each line that a worker prints begins with its number. If a worker fails, the
others are ended, and the exit status is that of the worker. Ctrl-C ends all workers.

  tfdistr run -n 4 train.py --epochs 2          # what follows the script are its arguments
  tfdistr run --hosts a,b -n 4 train.R          # two workers on each host, by ssh and MPI
  tfdistr run --config job.toml                 # flags win over the file
"""
_TEST = """\
Train a small model on one worker and on several, and compare. The exit status is 0 if all is well.

  tfdistr test                                  # two workers on this machine
  tfdistr test --hosts a,b -n 4
"""
_INTERRUPTED = "Interrupted: all workers were ended."
_INTERRUPTED_STATUS = 130


def add_commands(commands: Any) -> None:
    """Add the commands to the parser of ``tfdistr``."""
    run = add_command(commands, "run", "run a script as the workers of a cluster", _run, Script, _RUN)
    run.add_argument("--config", metavar="FILE", help="a file with options, in TOML")
    words = "train a small model on several workers, and compare"
    add_command(commands, "test", words, _test, Workers, _TEST)


def _run(parsed: argparse.Namespace) -> int:
    from tfdistr.cli.script import run_script

    options = given(parsed, Script)
    if "config" in parsed:
        from_file = read_config(parsed.config, Script)
        env = {**check_env(from_file.get("env")), **options.get("env", {})}
        if "script" in options:
            from_file.pop("arguments", None)  # they are those of another script
        options = {**from_file, **options, "env": env}
    if "script" not in options:
        raise ArgumentError(
            "`tfdistr run` needs a script.", received="no script", fix="Write: tfdistr run -n 4 train.py"
        )
    script = Script(**options)
    try:
        run_script(script, _show)
    except KeyboardInterrupt:
        print(_INTERRUPTED, file=sys.stderr)
        return _INTERRUPTED_STATUS
    except JobStoppedError as stopped:
        print(stopped, file=sys.stderr)
        return STOPPED_STATUS
    except WorkerFailedError as error:
        print(error, file=sys.stderr)
        code = error.exit_code or 1
        return code if code > 0 else 128 - code
    return 0


def _test(parsed: argparse.Namespace) -> int:
    from tfdistr.cli.self_test import self_test

    try:
        verdict = self_test(Workers(**given(parsed, Workers)), lambda line: print(line, flush=True))
    except KeyboardInterrupt:
        print(_INTERRUPTED, file=sys.stderr)
        return _INTERRUPTED_STATUS
    print(verdict)
    return 0 if verdict.ok else 1


def add_command(
    commands: Any, name: str, words: str, run: Callable[[argparse.Namespace], int] | None = None,
    options: type | None = None, text: str | None = None,
) -> argparse.ArgumentParser:  # fmt: skip
    """Add a command.

    Args:
        commands: The subparsers of a parser.
        name: The name of the command.
        words: A line about it, for the list of commands.
        run: Does its work, and returns the exit status. Without it, the command has commands of its own.
        options: The attrs class whose fields are its flags.
        text: Its description, as it is shown; by default ``words``.
    """
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=words, description=text or words, formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS, allow_abbrev=False,
    )  # fmt: skip
    parser.set_defaults(run=run)
    if options is not None:
        add_flags(parser, options)
    return parser


def _show(event: dict[str, Any]) -> None:
    """Show the output and warnings of a worker, and restarts."""
    kind = event["event"]
    if kind == "log":
        print(f"[worker {event['worker']}] {event['line']}", flush=True)
    elif kind == "warning":
        print(f"Warning: {event['message']}", file=sys.stderr, flush=True)
    elif kind == "restart":
        print(f"Starting the workers again: {event['reason']}.", file=sys.stderr, flush=True)
