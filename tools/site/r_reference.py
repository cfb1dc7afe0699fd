"""The pages of the R reference, from man/*.Rd: R makes them HTML, and this makes them pages of the site."""

from __future__ import annotations

import html
import re
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from groups import grouped, listed

_SCRIPT = Path(__file__).with_name("rd.R")
_CODE = re.compile(r"<pre><code class='language-R'>(.*?)</code></pre>", re.DOTALL)
_LINK = re.compile(r'<a href="rd:([^"]+)">')
_ELSEWHERE = re.compile(r'<a href="\.\./\.\./[^"]*">(.*?)</a>')


def navigation(root: Path) -> list[dict[str, Any] | str]:
    """The part of the navigation: the list, and a page for each Rd file."""
    groups = grouped(_read(root)[0])
    return [
        "r/index.md",
        *({group: [{title(name): f"r/{name}.md"} for name in members]} for group, members in groups.items()),
    ]


def pages(root: Path) -> dict[str, str]:
    """The text of each page, by its place in the site."""
    index, texts = _read(root)
    made = {f"r/{name}.md": _page(name, texts[name]) for name in index}
    rows = {
        name: f"| {', '.join(f'[`{alias}`]({name}.md)' for alias in aliases)} | {sentence} |"
        for name, (sentence, aliases) in index.items()
    }
    head = "# R reference\n\nAll pages of the package; `?distributed_fit` shows the same text."
    made["r/index.md"] = f"{head}\n\n{listed(index, rows)}"
    return made


def aliases(root: Path) -> dict[str, list[str]]:
    """The names that each page describes."""
    return {name: names for name, (_, names) in _read(root)[0].items()}


def title(name: str) -> str:
    """The name of a page, as users know it."""
    return name.removesuffix("-package").removesuffix(".tfdistr_fit")


@cache
def _read(root: Path) -> tuple[dict[str, tuple[str, list[str]]], dict[str, str]]:
    """Of each page its title and the names that it describes; and its HTML."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            ["Rscript", "--vanilla", _SCRIPT, root / "man", folder], check=True, stderr=subprocess.DEVNULL
        )
        lines = [line.split("\t") for line in (Path(folder) / "index.tsv").read_text().splitlines()]
        texts = {name: (Path(folder) / f"{name}.html").read_text() for name, *_ in lines}
    return {name: (sentence, aliases.split()) for name, sentence, aliases in lines}, texts


def _page(name: str, text: str) -> str:
    """One page: headings and code as Markdown, so that the site has them in its contents and its colours."""
    sentence, body = re.search(r"<h2>(.*?)</h2>(.*)<hr />", text, re.DOTALL).groups()
    body = _CODE.sub(
        lambda match: f"\n```r\n{html.unescape(re.sub('<[^>]*>', '', match[1])).strip()}\n```\n", body
    )
    body = _ELSEWHERE.sub(r"\1", _LINK.sub(r'<a href="\1.html">', body))
    body = re.sub(r"<h3>(.*?)</h3>", r"\n## \1\n", body)
    body = re.sub(r"<h4>(.*?)</h4>", r"\n### \1\n", body)
    body = body.replace("<table>\n<tr style=", '<table class="r-arguments">\n<tr style=')
    body = re.sub(r"<td><code>(\w+)</code></td>", r'<td id="\1"><code>\1</code></td>', body)
    kind = "package" if name.endswith("-package") else "R"
    return f"---\ntitle: {title(name)} ({kind})\n---\n# `{title(name)}`: {sentence}\n{body}\n"
