"""Links from names in code to their reference: in guides, and between the references of both languages."""

from __future__ import annotations

import posixpath
import re
from functools import cache
from pathlib import Path

import python_reference
import r_reference

#: Headings, links and blocks, which stay as they are; or a name in code, alone, called, or as an argument.
_CODE = re.compile(
    r"<(pre|a|h\d)\b.*?</\1>|"
    r"<code>(?P<code>(?P<argument>\w+ ?= ?)?(?P<of>tfdistr\.)?(?P<name>[\w.]+)(?P<call>\([^<]*\))?)</code>",
    re.DOTALL,
)
#: Names that are also R's, Keras's or TensorFlow's own.
_OTHERS = {
    "evaluate", "predict", "summary", "print", "plot",
    "MultiWorkerMirroredStrategy", "MirroredStrategy", "OneDeviceStrategy",
}  # fmt: skip


def linked(page: str, uri: str, root: Path) -> str:
    """Link each name of a reference that stands in code."""

    def link(match: re.Match[str]) -> str:
        target = match["code"] and _target(match, root)
        if not target or target == uri:
            return match[0]
        address = posixpath.relpath(target, posixpath.dirname(uri) or ".").removesuffix(".md")
        return f'<a href="{address}.html">{match[0]}</a>'

    return _CODE.sub(link, page)


def _target(match: re.Match[str], root: Path) -> str | None:
    """The page of a name. A call that is written as in R leads to R's page."""
    name, call = match["name"], match["call"]
    if not match["of"] and (name in _OTHERS or not (call or re.search(r"[a-z][A-Z]", name))):
        return None  # a word, or an argument
    languages = [_python(root), _r(root)]
    if re.search(r" = |\bTRUE\b|\bc\(", match["code"]):
        languages.reverse()
    return next((pages[name] for pages in languages if name in pages), None)


def other_language(uri: str, root: Path) -> str | None:
    """A line that leads from a page of one reference to the same name in the other."""
    language, _, name = uri.removesuffix(".md").partition("/")
    pages, title = (_r(root), "R") if language == "python" else (_python(root), "Python")
    return f"In {title}: [`{name}`](../{pages[name]})" if name in pages else None


@cache
def _python(root: Path) -> dict[str, str]:
    return {name: f"python/{name}.md" for name in python_reference.names(root)}


@cache
def _r(root: Path) -> dict[str, str]:
    aliases = r_reference.aliases(root).items()
    return {alias: f"r/{page}.md" for page, names in aliases for alias in names}
