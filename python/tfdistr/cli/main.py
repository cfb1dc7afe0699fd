"""The command ``tfdistr``: scripts as workers, servers that a user starts by hand, and checks."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from tfdistr._version import __version__
from tfdistr.cli.commands import Commands, add_command, add_commands
from tfdistr.cli.flags import add_flag
from tfdistr.errors import ArgumentError, ClusterConfigError, TfdistrError
from tfdistr.rendezvous.config import ClusterConfig, parse_tf_config
from tfdistr.rendezvous.tf_config import load_json
from tfdistr.utils.arguments import read_text
from tfdistr.utils.describe import describe
from tfdistr.utils.warn import WARNINGS

#: The option with the addresses of each job.
_HOSTS = {"chief": "chief_host", "worker": "worker_hosts", "ps": "ps_hosts"}
_ENV = """\
Print what a bug report needs: the versions of packages, the machine, the environment variables that matter,
and the table of `tfdistr doctor`.
"""
_SERVER = """\
Run a parameter server, or a worker, until the chief says that it is done. The chief is the process that calls
distributed_fit(strategy="parameter_server"), or "model_parallel" for workers without parameter servers, with
TF_CONFIG set. Start one process for each task, with the same cluster, in any order.

  tfdistr server --type ps --index 0 --cluster cluster.json
  tfdistr server --type ps --index 0 --chief-host a:2222 --worker-hosts b:2222,c:2222 --ps-hosts d:2222

The flags that scripts for TensorFlow 1 take by custom are known, too: --job_name and --task_index.
"""


_DOCTOR = """\
Look, from this machine, for what would keep a cluster from starting: the form of TF_CONFIG, names, ports,
clocks, versions, GPUs, R. The exit status is 0 if all is well, 1 if a check has failed, 2 if the arguments
are wrong.

  tfdistr doctor                        # the TF_CONFIG of the environment, if there is one
  tfdistr doctor tf_config.json
  tfdistr doctor --hosts a,b            # for ssh_cluster(["a", "b"])
"""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command with these arguments and return its exit status; 2 if the arguments were wrong."""
    parsed = _parser().parse_args(arguments)
    try:
        return int(parsed.run(parsed))
    except TfdistrError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, ArgumentError | ClusterConfigError) else 1


def main() -> NoReturn:
    """The entry of the command."""
    status = run()
    sys.stdout.flush()
    sys.stderr.flush()
    # TensorFlow's server has threads that cannot be ended: leave without the interpreter's shutdown.
    os._exit(status)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tfdistr", description="Distributed training of Keras 3 models.")
    parser.add_argument("--version", action="version", version=f"tfdistr {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_server(commands)
    _add_doctor(commands)
    bug_report = add_command(commands, "env", "print what a bug report needs", _report, text=_ENV)
    _add_timeout(bug_report)
    add_commands(commands)
    return parser


def _add_server(commands: Commands) -> None:
    server = add_command(commands, "server", "run a parameter server or a worker", _serve, text=_SERVER)
    server.argument_default = None
    add_flag(server, "type", unlisted=["--job_name"], choices=("ps", "worker"), help="job of this process")
    add_flag(server, "index", unlisted=["--task_index"], type=int, help="its index in the job, from 0")
    server.add_argument(
        "--cluster", metavar="FILE", help='a JSON file: TF_CONFIG, or its member "cluster" alone'
    )
    for job, flag in _HOSTS.items():
        add_flag(server, flag, dest=job, metavar="HOST:PORT,...", help=f"addresses of the job {job}")
    add_flag(
        server, "start_timeout", type=float, default=3600.0, metavar="SECONDS",
        help="how long to wait for the chief to come (default: %(default)g)",
    )  # fmt: skip
    add_flag(
        server, "chief_timeout", type=float, default=60.0, metavar="SECONDS",
        help="how long the chief may be gone before this process ends (default: %(default)g)",
    )  # fmt: skip


def _add_doctor(commands: Commands) -> None:
    words = "look for what would keep a cluster from starting"
    doctor = add_command(commands, "doctor", words, _examine, text=_DOCTOR)
    doctor.argument_default = None
    doctor.add_argument("file", nargs="?", metavar="FILE", help="a file with TF_CONFIG")
    doctor.add_argument("--hosts", metavar="HOST,...", help="hosts for ssh_cluster(), instead of a TF_CONFIG")
    doctor.add_argument("--ssh", metavar="COMMAND", help="what reaches the hosts: a program and its options")
    add_flag(
        doctor, "run_dir", metavar="FOLDER",
        help="the folder that all hosts must see (default: the working directory)",
    )  # fmt: skip
    _add_timeout(doctor)
    doctor.add_argument("--json", action="store_true", help="print the rows as JSON")


def _add_timeout(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--timeout", type=float, default=20.0, metavar="SECONDS",
        help="how long a check may take (default: %(default)g)",
    )  # fmt: skip


def _report(parsed: argparse.Namespace) -> int:
    from tfdistr.diagnosis import bug_report

    print(bug_report(parsed.timeout))
    return 0


def _examine(parsed: argparse.Namespace) -> int:
    from tfdistr.diagnosis import doctor, read_config

    config = read_config(parsed.file) if parsed.file is not None else None
    hosts = parsed.hosts.split(",") if parsed.hosts is not None else None
    found = doctor(config, hosts=hosts, timeout=parsed.timeout, ssh=parsed.ssh, run_dir=parsed.run_dir)
    rows = [row._asdict() for row in found.rows]
    print(json.dumps(rows) if parsed.json else found.table(color=sys.stdout.isatty()))
    return 0 if found.ok else 1


def _serve(parsed: argparse.Namespace) -> int:
    from tfdistr.parameter_servers.server_process import offer_feed_late
    from tfdistr.servers.server_task import serve

    hosts = {job: getattr(parsed, job) for job in _HOSTS}
    config = server_config(parsed.type, parsed.index, parsed.cluster, hosts)

    def say() -> None:
        print(f"{config.task} of the cluster serves at {config.address}", flush=True)

    with WARNINGS.as_notes():
        serve(
            config, start_timeout=parsed.start_timeout, chief_timeout=parsed.chief_timeout, on_ready=say,
            offer_more=offer_feed_late,
        )  # fmt: skip
    print(f"{config.task} has ended: the chief is done", flush=True)
    return 0


def server_config(
    task_type: str | None, index: int | None, file: str | None, hosts: dict[str, str | None]
) -> ClusterConfig:
    """Return the cluster and the task of a process: from a file, from addresses, or from TF_CONFIG."""
    given = {job: text.split(",") for job, text in hosts.items() if text}
    if file is not None and given:
        raise ArgumentError(
            "Give the cluster as a file or as addresses, not as both.",
            received=f"--cluster {file} and {', '.join(flag_of(job) for job in given)}",
            fix="Leave one of them out.",
        )
    if file is not None:
        document = _document(file)
    elif given:
        document = {"cluster": given}
    elif os.environ.get("TF_CONFIG"):
        document = _parsed(os.environ["TF_CONFIG"], "TF_CONFIG")
    else:
        raise ArgumentError(
            "A server must know the addresses of the cluster.",
            received="neither --cluster nor --ps-hosts, and no TF_CONFIG",
            fix="Pass --cluster cluster.json, or --chief-host, --worker-hosts and --ps-hosts.",
        )
    task = document.get("task") or {}
    if isinstance(task, dict):
        task = {**task, **{k: v for k, v in (("type", task_type), ("index", index)) if v is not None}}
    missing = [name for name in ("type", "index") if isinstance(task, dict) and name not in task]
    if missing:
        raise ArgumentError(
            "A server must know which task of the cluster it is.",
            received=f"no --{' and no --'.join(missing)}",
            fix="Pass for example --type ps --index 0.",
        )
    return parse_tf_config({**document, "task": task})


def flag_of(job: str) -> str:
    """Return the flag with the addresses of a job."""
    return f"--{_HOSTS[job].replace('_', '-')}"


def _document(file: str) -> dict[str, object]:
    text = read_text(
        file,
        rule="`--cluster` must name a file that can be read.",
        fix='Write {"chief": ["a:2222"], "worker": ["b:2222"], "ps": ["c:2222"]} into a file.',
    )
    document = _parsed(text, file)
    return document if "cluster" in document else {"cluster": document}


def _parsed(text: str, what: str) -> dict[str, object]:
    document = load_json(text)
    if not isinstance(document, dict):
        raise ClusterConfigError(
            f"{what} must hold a JSON object.",
            received=describe(document),
            fix='Write it like {"chief": ["a:2222"], "worker": ["b:2222"], "ps": ["c:2222"]}.',
        )
    return document
