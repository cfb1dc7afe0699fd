"""The commands ``tfdistr run``, ``tfdistr config`` and ``tfdistr test``."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from tfdistr.cli.config_file import read_config, write_config
from tfdistr.cli.script_options import Script, Workers
from tfdistr.errors import STOPPED_STATUS, ArgumentError, JobStoppedError, WorkerFailedError

_RUN = """\
Start a script of Python or R as the workers of a cluster. Inside, distributed_fit() without `cluster` and the
strategies train on all workers. Each line that a worker prints begins with its number. If a worker fails, the
others are ended, and the exit status is that of the worker. Ctrl-C ends all workers.

  tfdistr run -n 4 train.py --epochs 2          # what follows the script are its arguments
  tfdistr run --hosts a,b -n 4 train.R          # two workers on each host, by ssh and MPI
  tfdistr run --config job.toml                 # flags win over the file
"""
_CONFIG = """\
Write a file for `tfdistr run --config`. The flags are those of `tfdistr run`. In a terminal, the command asks
for what it needs and no flag says.

  tfdistr config --output job.toml -n 4 train.py
"""
_TEST = """\
Train a small model on one worker and on several, and compare. The exit status is 0 if all is well.

  tfdistr test                                  # two workers on this machine
  tfdistr test --hosts a,b -n 4
"""
_INTERRUPTED = 130


def add_commands(commands: Any) -> None:
    """Add the commands to the parser of ``tfdistr``."""
    run = _command(commands, "run", "run a script as the workers of a cluster", _RUN, _run)
    run.add_argument("--config", metavar="FILE", help="a file with options, in TOML")
    _add_script(run)
    config = _command(commands, "config", "write a file for run --config", _CONFIG, _config)
    config.add_argument("--output", default="job.toml", metavar="FILE", help="default: %(default)s")
    _add_script(config)
    test = _command(commands, "test", "train a small model on several workers, and compare", _TEST, _test)
    _add_workers(test)


def _command(commands: Any, name: str, words: str, text: str, function: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=words, description=text, formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS, allow_abbrev=False,
    )  # fmt: skip
    parser.set_defaults(run=function)
    return parser


def _add_workers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-n", "--workers", type=_number_or_gpus, metavar="N",
        help='workers on all hosts together, or "gpus" (default: 2 here, one on each host)',
    )  # fmt: skip
    parser.add_argument("--hosts", type=lambda text: text.split(","), metavar="HOST,...", help="the hosts")
    parser.add_argument("--hostfile", metavar="FILE", help='a host on each line, such as "node-1 slots=2"')
    parser.add_argument("--cores", dest="cores_per_worker", type=int, metavar="N", help="cores of a worker")
    parser.add_argument("--communication", help="auto (default), mpi, ring or nccl")
    add_env(parser)
    parser.add_argument(
        "--start_timeout", "--start-timeout", type=float, metavar="SECONDS",
        help="how long the workers may take to start (default: 300)",
    )  # fmt: skip
    parser.add_argument("--ssh", metavar="COMMAND", help="what reaches the hosts, and its options")


def _add_script(parser: argparse.ArgumentParser) -> None:
    _add_workers(parser)
    parser.add_argument("--run_dir", "--run-dir", metavar="DIR", help="a new folder for events and logs")
    parser.add_argument("--log_dir", "--log-dir", metavar="DIR", help="a folder for the logs of the workers")
    parser.add_argument(
        "--max_restarts", "--max-restarts", type=int, metavar="N",
        help="how often all workers are started again after a failure (default: 0)",
    )  # fmt: skip
    parser.add_argument("script", nargs="?", help="a file of Python (.py) or R (.R)")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the arguments of the script")


def add_env(parser: argparse.ArgumentParser) -> None:
    """Add the flags with environment variables for the workers."""
    parser.add_argument(
        "--env", action=_Env, metavar="NAME[=VALUE]",
        help="an environment variable for the workers; repeat it. Other users can read a command line: for a "
        "secret, leave out the value, and it is that of this environment",
    )  # fmt: skip
    parser.add_argument(
        "--env_file", "--env-file", action=_EnvFile, metavar="FILE",
        help="a file with a line NAME=VALUE for each variable",
    )  # fmt: skip


class _Env(argparse.Action):
    """Collects NAME=VALUE, or NAME with the value that it has in this process."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        name, sign, value = str(values).partition("=")
        if not name:
            parser.error("--env takes NAME or NAME=VALUE, such as --env OMP_NUM_THREADS=1")
        if not sign and name not in os.environ:
            parser.error(f"--env {name} takes the value of this environment, which has no {name}")
        _add(namespace, {name: value if sign else os.environ[name]})


class _EnvFile(argparse.Action):
    """Collects the variables of a file. No error shows a value."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        try:
            lines = Path(values).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeError) as error:
            parser.error(f"--env_file: {values} cannot be read ({getattr(error, 'strerror', 'no UTF-8')})")
        found = {}
        for number, line in enumerate(lines, 1):
            name, sign, value = line.partition("=")
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            if not sign or not name.strip():
                parser.error(f"--env_file: line {number} of {values} has another form than NAME=VALUE")
            found[name.strip()] = value
        _add(namespace, found)


def _add(namespace: Any, variables: dict[str, str]) -> None:
    namespace.env = {**getattr(namespace, "env", {}), **variables}


def _number_or_gpus(text: str) -> int | str:
    return text if text == "gpus" else int(text)


def _options(parsed: argparse.Namespace) -> dict[str, Any]:
    """The options that the flags give."""
    options = {name: value for name, value in vars(parsed).items() if name not in ("run", "config", "output")}
    return {name: value for name, value in options.items() if value is not None and value != []}


def _run(parsed: argparse.Namespace) -> int:
    from tfdistr.cli.script import run_script

    options = _options(parsed)
    if getattr(parsed, "config", None) is not None:
        from_file = read_config(parsed.config)
        env = {**from_file.get("env", {}), **options.get("env", {})}
        if "script" in options:
            from_file.pop("arguments", None)  # they are those of another script
        options = {**from_file, **options, "env": env}
    if "script" not in options:
        raise ArgumentError(
            "`tfdistr run` needs a script.", received="no script", fix="Write: tfdistr run -n 4 train.py"
        )
    try:
        run_script(Script(**options), show)
    except KeyboardInterrupt:
        print("Interrupted: all workers were ended.", file=sys.stderr)
        return _INTERRUPTED
    except JobStoppedError as stopped:
        print(stopped, file=sys.stderr)
        return STOPPED_STATUS
    except WorkerFailedError as error:
        print(error, file=sys.stderr)
        code = error.exit_code or 1
        return code if code > 0 else 128 - code
    return 0


def show(event: dict[str, Any]) -> None:
    """Show what a worker prints, its warnings, and restarts."""
    kind, worker = event["event"], event.get("worker")
    if kind == "log":
        print(f"[worker {worker}] {event['line']}", flush=True)
    elif kind == "warning":
        print(f"Warning: {event['message']}", file=sys.stderr, flush=True)
    elif kind == "restart":
        print(f"Starting the workers again: {event['reason']}.", file=sys.stderr, flush=True)


def _config(parsed: argparse.Namespace) -> int:
    options = _options(parsed)
    if sys.stdin.isatty() and sys.stdout.isatty():
        options = ask(options)
    if "script" in options:
        Script(**options)  # refuses what `tfdistr run` would refuse
    write_config(parsed.output, options)
    print(f"Written: {parsed.output}. Run it with: tfdistr run --config {parsed.output}")
    return 0


def ask(options: dict[str, Any], read: Any = input) -> dict[str, Any]:
    """Ask for the script and the workers, unless flags say them."""
    asked = dict(options)
    if "script" not in asked:
        words = read("Script and its arguments (train.py --epochs 2): ").split()
        asked |= {"script": words[0], "arguments": words[1:]} if words else {}
    if "hosts" not in asked and "hostfile" not in asked:
        hosts = read("Hosts, with commas between them (none: this machine): ").replace(",", " ").split()
        asked |= {"hosts": hosts} if hosts else {}
    if "workers" not in asked:
        number = read("Number of workers on all hosts together (default: 2 here, one on each host): ").strip()
        asked |= {"workers": _number_or_gpus(number)} if number else {}
    return asked


def _test(parsed: argparse.Namespace) -> int:
    from tfdistr.cli.self_test import self_test

    try:
        verdict = self_test(Workers(**_options(parsed)), lambda line: print(line, flush=True))
    except KeyboardInterrupt:
        print("Interrupted: all workers were ended.", file=sys.stderr)
        return _INTERRUPTED
    print(verdict)
    return 0 if verdict.ok else 1
