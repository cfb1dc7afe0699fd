"""The commands ``tfdistr kubernetes write``, ``containerfile`` and ``worker``."""

from __future__ import annotations

import argparse
from typing import Any

from tfdistr.cli.commands import add_command
from tfdistr.cli.flags import given
from tfdistr.cli.kubernetes.pod_options import IMAGE, Pods

_TEXT = """\
Run a script of Python or R as the pods of an Indexed Job of Kubernetes. Inside, distributed_fit() without
`cluster` trains on all pods.

  tfdistr kubernetes containerfile                   # a Containerfile, for the image of the pods
  tfdistr kubernetes write -n 4 train.py --epochs 2  # the manifests, for kubectl apply -f train.json
"""
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
    parser = add_command(commands, "kubernetes", "run a script as the pods of a Job", text=_TEXT)
    within = parser.add_subparsers(required=True, metavar="COMMAND")
    write = add_command(within, "write", "write the manifests of a script, for kubectl", _write, Pods)
    write.add_argument("--output", metavar="FILE", help='by default NAME.json; "-": the standard output')
    words = "write a Containerfile for the image of the pods"
    container = add_command(within, "containerfile", words, _containerfile)
    container.add_argument("--output", default="Containerfile", metavar="FILE", help="default: %(default)s")
    worker = add_command(within, "worker", "what a pod runs", _worker)
    worker.add_argument("script")
    worker.add_argument("arguments", nargs=argparse.REMAINDER)


def _write(parsed: argparse.Namespace) -> int:
    from tfdistr.cli.kubernetes.manifests import as_text, write_manifests

    options, output = given(parsed, Pods), getattr(parsed, "output", None)
    if output == "-":
        print(as_text(Pods(**options)), end="")
        return 0
    path = write_manifests(output, **options)
    print(f"Written: {path}. Start it with: kubectl apply -f {path}")
    return 0


def _containerfile(parsed: argparse.Namespace) -> int:
    from tfdistr.cli.kubernetes.manifests import write_new

    write_new(parsed.output, CONTAINERFILE.format(image=IMAGE))
    print(f"Written: {parsed.output}. In a checkout of tfdistr: docker build -t {IMAGE} -f {parsed.output} .")
    return 0


def _worker(parsed: argparse.Namespace) -> int:
    from tfdistr.cli.kubernetes.pod import run_worker

    return run_worker(parsed.script, parsed.arguments)
