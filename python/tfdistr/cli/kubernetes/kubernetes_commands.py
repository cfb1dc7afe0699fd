"""The commands ``tfdistr kubernetes write``, ``run``, ``containerfile`` and ``worker``."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from tfdistr.cli.commands import add_env, show
from tfdistr.errors import STOPPED_STATUS, JobStoppedError, WorkerFailedError

_TEXT = """\
Run a script of Python or R as the pods of an Indexed Job of Kubernetes. Inside, distributed_fit() without
`cluster` trains on all pods.

  tfdistr kubernetes containerfile                   # a Containerfile, for the image of the pods
  tfdistr kubernetes write -n 4 train.py --epochs 2  # the manifests, for kubectl apply -f train.json
  tfdistr kubernetes run -n 4 train.py --epochs 2    # by kubectl: start, follow, and delete at the end
"""
_INTERRUPTED = 130
#: Debian 13 with Python, R, and the checkout that is the context of the build.
CONTAINERFILE = """\
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


def add_kubernetes(commands: Any) -> None:
    """Add the commands to the parser of ``tfdistr``."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = commands.add_parser(
        "kubernetes", help="run a script as the pods of a Job", description=_TEXT, formatter_class=raw
    )
    within = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, words: str, function: Any) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = within.add_parser(
            name, help=words, description=words, argument_default=argparse.SUPPRESS, allow_abbrev=False
        )
        made.set_defaults(run=function)
        return made

    write = command("write", "write the manifests of a script, for kubectl", _write)
    write.add_argument("--output", metavar="FILE", help='by default NAME.json; "-": the standard output')
    run = command("run", "run a script by kubectl: start, follow, and delete at the end", _run)
    run.add_argument("--log_dir", "--log-dir", metavar="DIR", help="a folder for the logs of the workers")
    run.add_argument("--start_timeout", "--start-timeout", type=float, metavar="SECONDS",
                     help="how long pods may wait for nodes and images (default: no limit)")  # fmt: skip
    for each in (write, run):
        _add_pods(each)
    container = command("containerfile", "write a Containerfile for the image of the pods", _containerfile)
    container.add_argument("--output", default="Containerfile", metavar="FILE", help="default: %(default)s")
    worker = command("worker", "what a pod runs", _worker)
    worker.add_argument("script")
    worker.add_argument("arguments", nargs=argparse.REMAINDER)


def _add_pods(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("-n", "--workers", type=int, metavar="N", help="the number of pods (default: 2)")
    add("--name", help="the name of the objects (default: from the name of the script)")
    add("--namespace", help="default: the namespace of kubectl")
    add("--image", help="the image of the pods")
    add("--in_image", "--in-image", action="store_true", help="the script is a path in the image")
    add("--cores_per_worker", "--cores-per-worker", type=int, metavar="N", help="cores of a pod")
    add("--memory", metavar="AMOUNT", help="memory of a pod, such as 8Gi")
    add("--gpus", type=int, metavar="N", help="NVIDIA's GPUs of a pod")
    add("--volume", metavar="CLAIM", help="a PersistentVolumeClaim for checkpoints")
    add("--run_dir", "--run-dir", metavar="DIR", help="the folder of the checkpoints in the volume")
    add("--max_restarts", "--max-restarts", type=int, metavar="N",
        help="how often the workers start again after a failure (default: 0)")  # fmt: skip
    add("--grace_period", "--grace-period", type=int, metavar="SECONDS",
        help="time to save a checkpoint after SIGTERM (default: 120)")  # fmt: skip
    add_env(parser)
    add("--secret_env", "--secret-env", action="append", metavar="NAME",
        help="a variable of this environment that a Secret brings to the workers; repeat it")  # fmt: skip
    add("script", help="a file of Python (.py) or R (.R)")
    add("arguments", nargs=argparse.REMAINDER, help="the arguments of the script")


def _pods(parsed: argparse.Namespace) -> Any:
    from tfdistr.cli.kubernetes.pod_options import Pods

    not_of_pods = ("run", "output", "log_dir", "start_timeout")
    return Pods(**{name: value for name, value in vars(parsed).items() if name not in not_of_pods})


def _write(parsed: argparse.Namespace) -> int:
    from tfdistr.cli.kubernetes.manifests import as_text, write_new

    pods = _pods(parsed)
    output = getattr(parsed, "output", f"{pods.name}.json")
    if output == "-":
        print(as_text(pods), end="")
        return 0
    write_new(output, as_text(pods))
    print(f"Written: {output}. Start it with: kubectl apply -f {output}")
    return 0


def _containerfile(parsed: argparse.Namespace) -> int:
    from tfdistr.cli.kubernetes.manifests import write_new
    from tfdistr.cli.kubernetes.pod_options import IMAGE

    write_new(parsed.output, CONTAINERFILE.format(image=IMAGE))
    print(f"Written: {parsed.output}. In a checkout of tfdistr: docker build -t {IMAGE} -f {parsed.output} .")
    return 0


def _worker(parsed: argparse.Namespace) -> int:
    from tfdistr.cli.kubernetes.pod import run_worker

    return run_worker(parsed.script, parsed.arguments)


def _run(parsed: argparse.Namespace) -> int:
    from tfdistr.cli.kubernetes.kubernetes_job import run_pods

    try:
        options = {name: getattr(parsed, name, None) for name in ("log_dir", "start_timeout")}
        run_pods(_pods(parsed), _show, **options)
    except KeyboardInterrupt:
        print("Interrupted: the pods were deleted.", file=sys.stderr)
        return _INTERRUPTED
    except JobStoppedError as stopped:
        print(stopped, file=sys.stderr)
        return STOPPED_STATUS
    except WorkerFailedError as error:
        print(error, file=sys.stderr)
        code = error.exit_code or 1
        return code if code > 0 else 128 - code
    return 0


def _show(event: dict[str, Any]) -> None:
    if event["event"] == "state":
        print(f"Worker {event['worker']}: {event['state']}", file=sys.stderr, flush=True)
    else:
        show(event)
