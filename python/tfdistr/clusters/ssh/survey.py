"""Asking hosts by ssh, all at once, what they have for workers, and refusing those that do not fit."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tfdistr.clusters.remote_worker import unseen_run_dir
from tfdistr.clusters.ssh import host_facts
from tfdistr.clusters.ssh.host_facts import MARK
from tfdistr.errors import ArgumentError, ClusterStartError, TfdistrError
from tfdistr.rendezvous.peer_failure import mismatch
from tfdistr.schemas import show

# The exit statuses of a shell whose program is missing, and of a Python that could not run the script.
_NO_PYTHON = (1, 126, 127)
#: The most seconds that ssh may take to connect.
CONNECT = 20.0
#: An R program that prints the versions that workers in R need.
VERSIONS_OF_R = (
    'v <- function(p) tryCatch(as.character(packageVersion(p)), error = function(e) ""); '
    'cat(as.character(getRversion()), v("reticulate"), v("tfdistr"), sep = "\\n")'
)


@dataclass(frozen=True)
class HostAnswer:
    """The facts about a host, or the failure and its fix; its clock is ``ahead`` by so many seconds."""

    host: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    failure: str | None = None
    fix: str = ""
    ahead: float = 0.0


def check_hosts(hosts: Any) -> tuple[str, ...]:
    """Check the form of ``hosts``: each must be a valid argument of ssh."""
    rule = None
    if isinstance(hosts, str) or not isinstance(hosts, Sequence) or not hosts:
        rule = "`hosts` must be a list of at least one host."
    elif any(not isinstance(host, str) for host in hosts):
        rule = "`hosts` must be names or addresses, as text."
    elif any(not host or host.startswith("-") or any(c in " \t\n," for c in host) for host in hosts):
        rule = 'Each host must be a name or an address, without spaces and commas and no "-" before it.'
    elif len(set(hosts)) < len(hosts):
        rule = "`hosts` must name each host once; `workers_per_host` says how many workers run there."
    if rule:
        raise ArgumentError(rule, received=show(hosts), fix='Pass hosts=["a", "b"], for example.')
    return tuple(hosts)


def name_of_host(host: str) -> str:
    """Return the name or the address of a host, without the user that ssh may need before it."""
    return host.rpartition("@")[2]


def words_of_ssh(ssh: Any) -> list[str]:
    """Return the words of the command ``ssh``; none if it is None."""
    try:
        words = [] if ssh is None else shlex.split(ssh)
        valid = ssh is None or bool(words)
    except (ValueError, AttributeError, TypeError):
        words, valid = [], False
    if not valid:
        raise ArgumentError(
            "`ssh` must be a program and its options, written as for a shell.",
            received=show(ssh),
            fix='Pass ssh="ssh -p 2222", for example, or leave it out.',
        )
    return words


def ssh_command(ssh: Sequence[str], host: str, command: Sequence[str], *options: str) -> list[str]:
    """Return the command that runs a program on a host; the options in ``ssh`` win over ``options``."""
    # Without a terminal, ssh can ask nobody for a password.
    given = ["-T", "-oBatchMode=yes", *options]
    return [*(ssh or ["ssh"]), *given, host, shlex.join(command)]


def ask_hosts(
    hosts: Sequence[str],
    *,
    ssh: Sequence[str] = (),
    timeout: float,
    ports: int = 1,
    wanted: Sequence[int] = (),
    names: Sequence[str] | None = None,
    env: Mapping[str, str] | None = None,
    marker: str | None = None,
    visible: str | None = None,
    r: dict[str, object] | None = None,
) -> list[HostAnswer]:
    """Ask hosts for the facts about them, all at once; host_facts.py describes what is asked."""
    env = env or {}
    request = {
        "path": list(filter(None, env.get("PYTHONPATH", "").split(os.pathsep))),
        "core": str(Path(__file__).parents[2]),
        "marker": marker,
        "names": list(map(name_of_host, hosts) if names is None else names),
        "ports": ports,
        "wanted": list(wanted),
        "visible": visible,
        "r": r,
    }
    # Python reads the script from its input: a host without tfdistr also answers.
    script = f"{Path(host_facts.__file__).read_text('utf-8')}\nreport_facts({json.dumps(request)!r})\n"
    queries = [_Query(host, ssh, script, timeout) for host in hosts]
    try:
        return [query.answer() for query in queries]
    finally:
        for query in queries:
            query.stop()


def r_request(rscript: Sequence[str], env: Mapping[str, str]) -> dict[str, object]:
    """Return the R program that prints the versions that R workers need, for `ask_hosts`."""
    libraries = {name: env[name] for name in ("R_LIBS", "R_LIBS_USER") if name in env}
    return {"command": [*rscript, "-e", VERSIONS_OF_R], "env": libraries}


class _Query:
    """One ssh that asks a host."""

    def __init__(self, host: str, ssh: Sequence[str], script: str, timeout: float) -> None:
        self._host = host
        self._timeout = timeout
        self._error: str | None = None
        self._process: subprocess.Popen[str] | None = None
        self._output = self._errors = ""
        option = f"-oConnectTimeout={max(1, int(min(timeout, CONNECT)))}"
        command = ssh_command(ssh, host, [sys.executable, "-"], option)
        self._sent = self._answered = time.time()
        self._end = time.monotonic() + timeout
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                errors="replace", start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            self._error = f"{command[0]}: {error.strerror}"
            return
        self._thread = threading.Thread(target=self._talk, args=(script,), daemon=True)
        self._thread.start()

    def _talk(self, script: str) -> None:
        assert self._process is not None
        with contextlib.suppress(OSError, ValueError):  # it was stopped
            self._output, self._errors = self._process.communicate(script)
        self._answered = time.time()

    def answer(self) -> HostAnswer:
        """Wait for the answer."""
        here = f"Let this user in without a password: ssh {shlex.quote(self._host)} true."
        if self._process is None:
            return HostAnswer(self._host, failure=self._error, fix="Install ssh, or pass `ssh`, its path.")
        self._thread.join(max(0.0, self._end - time.monotonic()))
        if self._thread.is_alive():
            return HostAnswer(self._host, failure=f"no answer within {self._timeout:g} s", fix=here)
        found = [line.partition(MARK)[2] for line in self._output.splitlines() if MARK in line]
        try:
            facts = json.loads(found[-1])
        except (ValueError, IndexError):
            status = self._process.returncode
            silent = f"ssh prints nothing, and exits with status {status}"
            last = (self._errors.strip().splitlines() or [silent])[-1]
            there = f"The same Python must be at this path on that host: {sys.executable}."
            return HostAnswer(self._host, failure=last, fix=there if status in _NO_PYTHON else here)
        before, after = facts["time"] - self._answered, facts["time"] - self._sent
        return HostAnswer(self._host, facts, ahead=before if before > 0 else min(after, 0.0))

    def stop(self) -> None:
        """End it, if it still runs."""
        if self._process is not None and self._thread.is_alive():
            self._process.kill()
            self._thread.join()


@contextlib.contextmanager
def marker_in(folder: str | os.PathLike[str]) -> Iterator[str]:
    """Make an empty file in the run directory, by which hosts show that they see it."""
    file, path = tempfile.mkstemp(prefix=".tfdistr-", dir=folder)
    try:
        os.close(file)
        yield path
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)


log = logging.getLogger("tfdistr")

#: Clocks may differ by this many seconds. With a larger difference, logs of several workers do not compare.
CLOCKS = 2.0
OK, BAD, NONE = "ok", "FAIL", "-"
_HERE = "this machine"
_GIB = 1 << 30
_BY_NTP = "Set the clocks by NTP: logs could not be compared."
_NAMES = (
    'Pass addresses, like hosts=["10.0.0.1", "10.0.0.2"], or make the names known there (DNS, /etc/hosts).'
)


class Row(NamedTuple):
    """The result of one check.

    Attributes:
        check: What was checked.
        status: "ok", "FAIL", or "-" where the check was not possible or does not matter.
        found: The observation.
        fix: What to do; "" if nothing.
    """

    check: str
    status: str
    found: str
    fix: str = ""


def findings(
    answers: Sequence[HostAnswer], here: Mapping[str, str | None], folder: str, *, sees_folder: bool = True
) -> list[Row]:
    """Return what is to be known of the hosts, in the order of the checks."""
    rows = [Row(f"host {each.host}", BAD, str(each.failure), each.fix) for each in _silent(answers)]
    there = {each.host: each for each in answers if each.facts}
    if not there:
        return rows
    rows.append(Row("hosts", OK, f"{_list(list(there))}: ssh lets this user in, and Python is there"))
    rows += [_version(name, here[name], there) for name in here]
    apart = {host: f"{each.ahead:+.1f} s" for host, each in there.items() if abs(each.ahead) > CLOCKS}
    clocks = _by_value(apart) if apart else f"at most {max(abs(e.ahead) for e in there.values()):.1f} s apart"
    rows.append(Row("clocks", BAD if apart else OK, clocks, _BY_NTP if apart else ""))
    unknown = _unknown_names(answers)
    names = ("names of the hosts", BAD if unknown else OK, unknown or "known on each host")
    rows.append(Row(*names, _NAMES if unknown else ""))
    none = [host for host, each in there.items() if not each.facts["ports"]]
    fix = "Install tfdistr there, and stop programs that listen on many ports." if none else ""
    ports = f"none found on {_list(none)}" if none else "found on each host"
    rows.append(Row("free ports", BAD if none else OK, ports, fix))
    rows.append(Row("cores", OK, _each(there, lambda facts: str(facts["cores"]))))
    rows.append(Row("free memory", OK, _each(there, lambda facts: _gib(facts["memory"]))))
    return [*rows, _folder(folder, there) if sees_folder else Row(
        "run directory", NONE, f"{folder}: this user cannot write there")]  # fmt: skip


def refuse_hosts(
    answers: Sequence[HostAnswer], here: Mapping[str, str | None], *, run_dir: str, workers_per_host: int
) -> TfdistrError | None:
    """Return the error for hosts on which workers cannot train together; None if they can."""
    place = {each.host: index * workers_per_host for index, each in enumerate(answers)}
    if silent := _silent(answers):
        error = ClusterStartError(
            "Each host must let this user in by ssh without a password, and have the Python of this machine.",
            received="; ".join(f"{each.host}: {each.failure}" for each in silent),
            fix=silent[0].fix,
        )
        if len(silent) < len(answers):
            error.worker, error.host = place[silent[0].host], silent[0].host
        return error
    fields = [here, *(each.facts["versions"] for each in answers)]
    named = [{name: value or "not installed" for name, value in versions.items()} for versions in fields]
    if different := mismatch(named, [_HERE, *(each.host for each in answers)]):
        return different
    for each in answers:
        if not each.facts["sees_marker"]:
            unseen = unseen_run_dir(run_dir, each.host, place[each.host])
            unseen.worker, unseen.host = place[each.host], each.host
            return unseen
    if unknown := _unknown_names(answers):
        return ClusterStartError(
            "Each host must resolve the names of all hosts: the workers connect to them.",
            received=unknown,
            fix=_NAMES,
        )
    apart = {each.host: f"{each.ahead:+.1f} s" for each in answers if abs(each.ahead) > CLOCKS}
    if apart:
        log.warning("The clocks of hosts differ from this machine's: %s. %s", _by_value(apart), _BY_NTP)
    return None


def _silent(answers: Sequence[HostAnswer]) -> list[HostAnswer]:
    return [each for each in answers if not each.facts]


def _unknown_names(answers: Sequence[HostAnswer]) -> str:
    unknown = {each.host: each.facts["unresolved"] for each in answers if each.facts}
    return "; ".join(f"{host} does not know {_list(names)}" for host, names in unknown.items() if names)


def _version(name: str, here: str | None, there: Mapping[str, HostAnswer]) -> Row:
    values = {_HERE: here, **{host: each.facts["versions"].get(name) for host, each in there.items()}}
    found = _by_value({place: value or "not installed" for place, value in values.items()})
    if None in values.values() or len(set(values.values())) > 1:
        return Row(name, BAD, found, "Install the same version on every host and on this machine.")
    return Row(name, OK, f"{here} on this machine and on each host")


def _folder(folder: str, there: Mapping[str, HostAnswer]) -> Row:
    blind = [host for host, each in there.items() if not each.facts["sees_marker"]]
    if blind:
        fix = "Pass `run_dir`, a folder of a file system that the hosts share."
        return Row("run directory", BAD, f"{folder} does not exist on {_list(blind)}", fix)
    return Row("run directory", OK, f"each host sees {folder}")


def _each(there: Mapping[str, HostAnswer], value: Callable[[Mapping[str, Any]], str]) -> str:
    return _by_value({host: value(each.facts) for host, each in there.items()})


def _gib(memory: int | None) -> str:
    return "not known" if memory is None else f"{memory / _GIB:.1f} GiB"


def _by_value(values: Mapping[str, str]) -> str:
    """List each value with the hosts that have it, in the order of the hosts."""
    places: dict[str, list[str]] = {}
    for place, value in values.items():
        places.setdefault(value, []).append(place)
    return ", ".join(f"{value} on {_list(which)}" for value, which in places.items())


def _list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else ""
