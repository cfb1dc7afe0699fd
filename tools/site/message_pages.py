"""The pages of all errors, with a heading for each message, from the table that messages.py reads."""

from __future__ import annotations

import html
import re
from functools import cache
from typing import NamedTuple

import messages

_ROOT = messages.ROOT


class Topic(NamedTuple):
    """A page of messages.

    Attributes:
        places: The folders and files of the package, and of R, whose messages it has.
        guide: The page that explains the subject.
    """

    title: str
    places: tuple[str, ...]
    guide: str


#: By the name of the page; the last one has what no other has.
TOPICS = {
    "data": Topic("Messages about data", ("data/", "R/data.R"), "data.md"),
    "clusters": Topic(
        "Messages about clusters and the start of workers",
        (
            "clusters/", "collectives/", "fork_server/", "network/", "rendezvous/", "servers/",
            "supervision/", "R/cluster", "R/gather.R", "R/warm.R", "R/worker.R",
        ),
        "machines.md",
    ),
    "checkpoints": Topic(
        "Messages about checkpoints and run directories",
        ("checkpoint/", "jobs/restarts", "jobs/resume", "jobs/run_dir", "jobs/stored", "training/recovery"),
        "recovery.md",
    ),
    "training": Topic(
        "Messages about models and training",
        (
            "training/", "strategies/", "parameter_servers/", "tf_internals/", "jobs/strategies/",
            "same_fit/", "testing", "compare", "R/callbacks.R", "R/closures.R", "R/multi", "R/custom",
        ),
        "model.md",
    ),
    "commands": Topic("Messages of commands and scripts", ("cli/", "R/script.R", "R/kubernetes.R"), "run.md"),
    "others": Topic("Other messages", ("",), "results.md"),
}  # fmt: skip
_ERRORS = (_ROOT / "python" / "tfdistr" / "errors.py").read_text()
#: What stands for a text that differs from case to case.
_GAP = "…"


def navigation() -> list[str]:
    """The part of the navigation."""
    return [_uri(name) for name in TOPICS]


@cache
def pages() -> dict[str, str]:
    """The text of each page, by its place in the site."""
    found: dict[str, dict[str, list[messages.Message]]] = {name: {} for name in TOPICS}
    for message in messages.messages():
        own_words = re.sub(r"\{[^}]*\}|\W", "", message.message)
        if len(own_words) > 8:  # else the code puts the whole text together
            heading = _shown(message.message.partition("\n")[0])
            found[_topic(message.place)].setdefault(heading, []).append(message)
    return {_uri(name): _page(TOPICS[name], of_text) for name, of_text in found.items()}


def _uri(name: str) -> str:
    return f"messages/{name}.md"


def _topic(place: str) -> str:
    place = place.removeprefix("python/tfdistr/")
    return next(name for name, topic in TOPICS.items() if place.startswith(topic.places))


def _page(topic: Topic, by_heading: dict[str, list[messages.Message]]) -> str:
    parts = [
        f"# {topic.title}",
        f"Every error of this subject, by its first line. {_GAP} stands for what differs from case to case. "
        f"See [the guide](../{topic.guide}).",
        *(_section(heading, by_heading[heading]) for heading in sorted(by_heading, key=_order)),
    ]
    return "\n\n".join(parts) + "\n"


def _order(heading: str) -> str:
    return re.sub(r"\W", "", heading).lower()


def _section(heading: str, found: list[messages.Message]) -> str:
    """The heading of a message, its class, and what was received and helps in each case."""
    kinds = sorted({message.error.rpartition(".")[2] for message in found})
    classes = ", ".join(f"`{kind}` (in R `{_in_r(kind)}`)" for kind in kinds)
    lines = {
        f"* *{name}*: {shown}": None
        for message in found
        for name, text in (("Received", message.received), ("Fix", message.fix))
        if re.search(r"\w", shown := _shown(text))
    }
    return "\n\n".join([f"## {heading}", classes, "\n".join(lines)]).rstrip()


def _in_r(kind: str) -> str:
    """The class in R, whose last word is in the attribute `kind` of the class in Python."""
    named = re.search(rf'^class {kind}\(.*?^    kind = "(\w+)"', _ERRORS, re.MULTILINE | re.DOTALL)
    return f"tfdistr_error_{named[1]}" if named else "tfdistr_error"


def _shown(text: str) -> str:
    """A text of the table in Markdown: code stays code, and what the code puts in is a gap."""
    text = re.sub(r"\{[A-Za-z_.]+\}", _GAP, " ".join(text.split()))
    return "".join(
        part if part.startswith("`") else re.sub(r"([*_<\[\]#|\\])", r"\\\1", html.escape(part, quote=False))
        for part in re.split(r"(`[^`]*`)", text)
    )
