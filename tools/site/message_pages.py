"""The pages of the errors, with a heading for each message, from the table that messages.py reads."""

from __future__ import annotations

import html
import json
import re
from collections import Counter
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
#: A text with more names of arguments than this is that of a shared check, and gets one heading.
_SAME = 3
_NAME = re.compile(r"^`[\w.]+`")


def navigation() -> list[str]:
    """The part of the navigation."""
    return [_uri(name) for name in TOPICS]


@cache
def pages() -> dict[str, str]:
    """The text of each page, by its place in the site."""
    return {_uri(name): _page(TOPICS[name], by_first_line) for name, by_first_line in _topics().items()}


def index() -> str:
    """The script that tells the search the first line of each message, and its address."""
    found = [
        [line, f"{_uri(name)[:-3]}.html#{_anchor(name, line)}"]
        for name, by_first_line in _topics().items()
        for line in by_first_line
    ]
    return f"const tfdistrMessages = {json.dumps(found, ensure_ascii=False)}\n"


@cache
def _topics() -> dict[str, dict[str, list[messages.Message]]]:
    """By topic and first line, in the order of the page: the messages."""
    found: dict[str, dict[str, list[messages.Message]]] = {name: {} for name in TOPICS}
    known = [message for message in messages.messages() if _has_words(message.message)]
    times = Counter((message.place, _NAME.sub(_GAP, message.message)) for message in known)
    for message in known:
        line = _with_gaps(message.message.partition("\n")[0])
        if times[message.place, _NAME.sub(_GAP, message.message)] > _SAME:
            line = _NAME.sub(f"`{_GAP}`", line)
        found[_topic(message.place)].setdefault(line, []).append(message)
    return {
        name: {line: of_line[line] for line in sorted(of_line, key=_order)} for name, of_line in found.items()
    }


def _has_words(text: str) -> bool:
    """Whether the code gives the text words, and does not put the whole of it together."""
    return len(re.sub(r"\{[^}]*\}|\W", "", text)) > 8


def _anchor(name: str, line: str) -> str:
    return f"m{list(_topics()[name]).index(line) + 1}"


def _uri(name: str) -> str:
    return f"messages/{name}.md"


def _topic(place: str) -> str:
    place = place.removeprefix("python/tfdistr/")
    return next(name for name, topic in TOPICS.items() if place.startswith(topic.places))


def _page(topic: Topic, by_first_line: dict[str, list[messages.Message]]) -> str:
    parts = [
        f"# {topic.title}",
        f"The errors of this subject, by their first lines. {_GAP} stands for what differs from case to "
        f"case. See [the guide](../{topic.guide}).",
        *(_section(f"m{number}", *item) for number, item in enumerate(by_first_line.items(), 1)),
    ]
    return "\n\n".join(parts) + "\n"


def _order(line: str) -> str:
    return re.sub(r"\W", "", line).lower()


def _section(anchor: str, line: str, found: list[messages.Message]) -> str:
    """The heading of a message, its class, and what was received and helps in each case."""
    kinds = sorted({message.error.rpartition(".")[2] for message in found})
    classes = ", ".join(f"`{kind}` (in R `{_in_r(kind)}`)" for kind in kinds)
    lines = {
        f"* *{name}*: {shown}": None
        for message in found
        for name, text in (("Received", message.received), ("Fix", message.fix))
        if re.search(r"\w", shown := _shown(text))
    }
    named = list(dict.fromkeys(name for message in found for name in _NAME.findall(message.message)[:1]))
    if line.startswith(f"`{_GAP}`") and len(named) > 1:
        classes += f". The argument is {', '.join(named)}"
    return "\n\n".join([f"## {_shown(line)} {{#{anchor}}}", classes, "\n".join(lines)]).rstrip()


def _in_r(kind: str) -> str:
    """The class in R, whose last word is in the attribute `kind` of the class in Python."""
    named = re.search(rf'^class {kind}\(.*?^    kind = "(\w+)"', _ERRORS, re.MULTILINE | re.DOTALL)
    return f"tfdistr_error_{named[1]}" if named else "tfdistr_error"


def _with_gaps(text: str) -> str:
    """A text in one line, with gaps for what the code puts in."""
    return re.sub(r"\{[A-Za-z_.]+\}", _GAP, " ".join(text.split()))


def _shown(text: str) -> str:
    """A text of the table in Markdown: code stays code."""
    text = _with_gaps(text)
    return "".join(
        part if part.startswith("`") else re.sub(r"([*_<\[\]#|\\])", r"\\\1", html.escape(part, quote=False))
        for part in re.split(r"(`[^`]*`)", text)
    )
