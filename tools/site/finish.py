"""What the HTML of a page gets last, so that it reads well on any width."""

from __future__ import annotations

import html
import re

_SIGNATURE = re.compile(
    r'(?P<signature>(?:<div class="doc-overloads">.*?</div>\s*(?=<div))?'
    r'<div class="[^"]*doc-signature[^"]*">.*?</div>)'
    r'(?P<between>\s*<div class="doc doc-contents ?(?:first)?">\s*)(?P<summary><p>.*?</p>)',
    re.DOTALL,
)
_TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
_OUTPUT = re.compile(r'<div class="(language-(?:text|console) highlight)">(.*?)</div>', re.DOTALL)
#: Longer lines are rows of a table only where most lines are.
_LONG = 110
#: So many columns can be read on a screen. Longer rows of a table wrap.
_WIDEST = 140


def summary_first(page: str) -> str:
    """Put the first sentence of a docstring before the signature."""
    return _SIGNATURE.sub(r"\g<summary>\n\g<signature>\g<between>", page)


def tables(page: str) -> str:
    """Let each cell know its column, which a phone shows, and let code break after its marks only."""
    return _TABLE.sub(_labelled, page)


def _labelled(match: re.Match[str]) -> str:
    titles = [
        re.sub("<.*?>", "", title) for title in re.findall(r"<th\b[^>]*>(.*?)</th>", match[0], re.DOTALL)
    ]

    def row(found: re.Match[str]) -> str:
        names = iter(titles)
        return re.sub("<td\\b", lambda _: f'<td data-label="{html.escape(next(names, ""))}"', found[0])

    rows = re.sub(r"<tr>.*?</tr>", row, match[0], flags=re.DOTALL)
    return re.sub(
        r"<code>(.*?)</code>", lambda code: f"<code>{_breakable(code[1])}</code>", rows, flags=re.DOTALL
    )


def _breakable(code: str) -> str:
    """Code that may break after its marks; within a name only if it is as long as those of tests."""
    marks = r"(?<=[/,])|(?<=::)"
    if re.search(r"\S{30}", code):
        marks += r"|(?<=\()|(?<=_)(?=\S{12})"
    return re.sub(rf"(?:{marks})(?=[\w.])", "<wbr>", code)


def outputs(page: str) -> str:
    """Let printed tables know their width, which chooses the size of their letters. Messages wrap."""

    def sized(match: re.Match[str]) -> str:
        lines = html.unescape(re.sub("<[^>]*>", "", match[2])).splitlines()
        rows = [line for line in lines if re.search(r"(\S {2,}|^ {8,})\S", line)]
        columns = max(map(len, rows), default=0)
        is_table = rows and (columns <= _LONG or len(rows) > len(lines) / 2)
        kind = f' table" style="--columns: {min(columns, _WIDEST)}"' if is_table else '"'
        return f'<div class="{match[1]}{kind}>{match[2]}</div>'

    return _OUTPUT.sub(sized, page)
