"""The commands ``tfdistr run``, ``tfdistr test``, ``replay``, ``verify`` and ``kubernetes``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TypeAlias

from tfdistr.cli import replay
from tfdistr.cli.flags import add_flags, given_flags, read_options
from tfdistr.cli.kubernetes.pod_options import IMAGE, Pods
from tfdistr.cli.script_options import Script, Workers
from tfdistr.clusters.environment import check_env
from tfdistr.errors import STOPPED_STATUS, ArgumentError, JobStoppedError, WorkerFailedError
from tfdistr.schemas.events import Event

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
_KUBERNETES = """\
Run a script of Python or R as the pods of an Indexed Job of Kubernetes. Inside, distributed_fit() without
`cluster` trains on all pods.

  tfdistr kubernetes containerfile                   # a Containerfile, for the image of the pods
  tfdistr kubernetes write -n 4 train.py --epochs 2  # the manifests, for kubectl apply -f train.json
"""
#: Debian 13 with Python, R, and the checkout that is the context of the build.
_CONTAINERFILE = """\
# The image of the workers, for scripts of Python and R. Build it in a checkout of tfdistr:
#   docker build -t {image} -f Containerfile .
# For GPUs, install "/src[gpu]" below.
FROM debian:trixie-slim
RUN apt-get update \\
 && apt-get install -y --no-install-recommends python3-venv r-base-core r-cran-cli r-cran-codetools \\
    r-cran-jsonlite r-cran-rcpptoml r-cran-reticulate r-cran-rlang r-cran-withr \\
 && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN python3 -m venv /opt/tfdistr \\
 && /opt/tfdistr/bin/pip install --no-cache-dir /src \\
 && R CMD INSTALL /src \\
 && rm -rf /src
ENV PATH=/opt/tfdistr/bin:$PATH RETICULATE_PYTHON=/opt/tfdistr/bin/python LC_ALL=C.UTF-8
"""
#: The subparsers of a parser.
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
_INTERRUPTED = "Interrupted: all workers were ended."
_INTERRUPTED_STATUS = 130


def add_commands(commands: Commands) -> None:
    """Add the commands to the parser of ``tfdistr``."""
    run = add_command(commands, "run", "run a script as the workers of a cluster", _run, Script, _RUN)
    run.add_argument("--config", metavar="FILE", help="a file with options, in TOML")
    words = "train a small model on several workers, and compare"
    add_command(commands, "test", words, _test, Workers, _TEST)
    words = "make a step of a run again"
    replay.add_arguments(add_command(commands, "replay", words, replay.run, text=replay.TEXT))
    words = "check that the files of a run are those of its training"
    parser = add_command(commands, "verify", words, replay.run_verify, text=replay.TEXT_OF_VERIFY)
    replay.add_arguments_of_verify(parser)
    _add_kubernetes(commands)


def _add_kubernetes(commands: Commands) -> None:
    parser = add_command(commands, "kubernetes", "run a script as the pods of a Job", text=_KUBERNETES)
    within = parser.add_subparsers(required=True, metavar="COMMAND")
    write = add_command(within, "write", "write the manifests of a script, for kubectl", _write, Pods)
    write.add_argument("--output", metavar="FILE", help='by default NAME.json; "-": the standard output')
    words = "write a Containerfile for the image of the pods"
    container = add_command(within, "containerfile", words, _containerfile)
    container.add_argument("--output", default="Containerfile", metavar="FILE", help="default: %(default)s")
    worker = add_command(within, "worker", "what a pod runs", _worker)
    worker.add_argument("script")
    worker.add_argument("arguments", nargs=argparse.REMAINDER)


def _run(parsed: argparse.Namespace) -> int:
    from tfdistr.cli.script import run_script

    options = given_flags(parsed, Script)
    if "config" in parsed:
        from_file = read_options(parsed.config, Script)
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
        verdict = self_test(Workers(**given_flags(parsed, Workers)), lambda line: print(line, flush=True))
    except KeyboardInterrupt:
        print(_INTERRUPTED, file=sys.stderr)
        return _INTERRUPTED_STATUS
    print(verdict)
    return 0 if verdict.ok else 1


def _write(parsed: argparse.Namespace) -> int:
    from tfdistr.cli.kubernetes.manifests import as_text, write_manifests

    options, output = given_flags(parsed, Pods), getattr(parsed, "output", None)
    if output == "-":
        print(as_text(Pods(**options)), end="")
        return 0
    path = write_manifests(output, **options)
    print(f"Written: {path}. Start it with: kubectl apply -f {path}")
    return 0


def _containerfile(parsed: argparse.Namespace) -> int:
    from tfdistr.cli.kubernetes.manifests import write_new

    write_new(parsed.output, _CONTAINERFILE.format(image=IMAGE))
    print(f"Written: {parsed.output}. In a checkout of tfdistr: docker build -t {IMAGE} -f {parsed.output} .")
    return 0


def _worker(parsed: argparse.Namespace) -> int:
    from tfdistr.cli.kubernetes.pod import run_in_pod

    return run_in_pod(parsed.script, parsed.arguments)


def add_command(
    commands: Commands, name: str, words: str, run: Callable[[argparse.Namespace], int] | None = None,
    options: type | None = None, text: str | None = None,
) -> argparse.ArgumentParser:  # fmt: skip
    """Add a command, with the fields of ``options`` as its flags; ``run`` does its work."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=words, description=text or words, formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS, allow_abbrev=False,
    )  # fmt: skip
    parser.set_defaults(run=run)
    if options is not None:
        add_flags(parser, options)
    return parser


def _show(event: Event) -> None:
    """Show the output and warnings of a worker, and restarts."""
    kind = event["event"]
    if kind == "log":
        print(f"[worker {event['worker']}] {event['line']}", flush=True)
    elif kind == "warning":
        print(f"Warning: {event['message']}", file=sys.stderr, flush=True)
    elif kind == "restart":
        print(f"Starting the workers again: {event['reason']}.", file=sys.stderr, flush=True)
