"""Compares hosts with each other and with this machine: what keeps workers there from training together."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tfdistr.clusters.hosts import unseen_run_dir
from tfdistr.clusters.ssh.survey import Answer
from tfdistr.errors import ClusterStartError, TfdistrError
from tfdistr.rendezvous.peer_failure import mismatch

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


class Finding(NamedTuple):
    """The result of one check of all hosts.

    Attributes:
        check: What was checked.
        status: `OK`, `BAD`, or `NONE` where nothing could be checked.
        found: The observation.
        fix: What to do; "" if nothing.
    """

    check: str
    status: str
    found: str
    fix: str = ""


def findings(
    answers: Sequence[Answer], here: Mapping[str, str | None], folder: str, *, sees_folder: bool = True
) -> list[Finding]:
    """Compare the answers of hosts.

    Args:
        answers: The answers.
        here: The versions on this machine.
        folder: The folder that all hosts must see, under which the marker of the survey was.
        sees_folder: Whether there was a marker: this process can write into the folder.
    """
    rows = [Finding(f"host {each.host}", BAD, str(each.failure), each.fix) for each in _silent(answers)]
    there = {each.host: each for each in answers if each.facts}
    if not there:
        return rows
    rows.append(Finding("hosts", OK, f"{_list(list(there))}: ssh lets this user in, and Python is there"))
    rows += [_version(name, here[name], there) for name in here]
    apart = {host: f"{each.ahead:+.1f} s" for host, each in there.items() if abs(each.ahead) > CLOCKS}
    clocks = _by_value(apart) if apart else f"at most {max(abs(e.ahead) for e in there.values()):.1f} s apart"
    rows.append(Finding("clocks", BAD if apart else OK, clocks, _BY_NTP if apart else ""))
    unknown = _unknown_names(answers)
    names = ("names of the hosts", BAD if unknown else OK, unknown or "known on each host")
    rows.append(Finding(*names, _NAMES if unknown else ""))
    none = [host for host, each in there.items() if not each.facts["ports"]]
    fix = "Let tfdistr be there, and end programs that listen on many ports." if none else ""
    ports = f"none found on {_list(none)}" if none else "found on each host"
    rows.append(Finding("free ports", BAD if none else OK, ports, fix))
    rows.append(Finding("cores", OK, _each(there, lambda facts: str(facts["cores"]))))
    rows.append(Finding("free memory", OK, _each(there, lambda facts: _gib(facts["memory"]))))
    return [*rows, _folder(folder, there) if sees_folder else Finding(
        "run directory", NONE, f"{folder}: this user cannot write there")]  # fmt: skip


def refuse(
    answers: Sequence[Answer], here: Mapping[str, str | None], *, run_dir: str, workers_per_host: int
) -> TfdistrError | None:
    """Return the error for hosts on which workers cannot train together; None if they can.

    Args:
        answers: The answers of the hosts.
        here: The versions on this machine.
        run_dir: The run directory, which had a marker.
        workers_per_host: The number of workers on each host.
    """
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
            "Each host must be able to look up the names of all hosts: the workers connect to them.",
            received=unknown,
            fix=_NAMES,
        )
    apart = {each.host: f"{each.ahead:+.1f} s" for each in answers if abs(each.ahead) > CLOCKS}
    if apart:
        log.warning("The clocks of hosts differ from this machine's: %s. %s", _by_value(apart), _BY_NTP)
    return None


def _silent(answers: Sequence[Answer]) -> list[Answer]:
    return [each for each in answers if not each.facts]


def _unknown_names(answers: Sequence[Answer]) -> str:
    unknown = {each.host: each.facts["unresolved"] for each in answers if each.facts}
    return "; ".join(f"{host} does not know {_list(names)}" for host, names in unknown.items() if names)


def _version(name: str, here: str | None, there: Mapping[str, Answer]) -> Finding:
    values = {_HERE: here, **{host: each.facts["versions"].get(name) for host, each in there.items()}}
    found = _by_value({place: value or "not installed" for place, value in values.items()})
    if None in values.values() or len(set(values.values())) > 1:
        return Finding(name, BAD, found, "Install the same version on every host and on this machine.")
    return Finding(name, OK, f"{here} on this machine and on each host")


def _folder(folder: str, there: Mapping[str, Answer]) -> Finding:
    blind = [host for host, each in there.items() if not each.facts["sees_marker"]]
    if blind:
        fix = "Pass `run_dir`, a folder of a file system that the hosts share."
        return Finding("run directory", BAD, f"{folder} is not there on {_list(blind)}", fix)
    return Finding("run directory", OK, f"each host sees {folder}")


def _each(there: Mapping[str, Answer], value: Callable[[Mapping[str, Any]], str]) -> str:
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
