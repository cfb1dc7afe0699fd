"""The numbers of the pages, and the report, from what `make proof` recorded.

A comment in a page says where the text after it, or the number before it, comes from:

    <!-- proof: NAME -->                  the next block is all that the part printed
    <!-- proof: NAME 2-4 -->              its paragraphs 2 to 4; empty lines divide them
    4.93<!-- proof: NAME "TEXT" -->       the first number of the first line with TEXT as whole words

`python tools/proof/pages.py` brings them and docs/proof/report.md up to date. `make proof` does the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from parts import FOLDER, PARTS, ROOT, Record, read, recorded

REPORT = FOLDER / "report.md"
_BLOCK = re.compile(
    r"(<!-- proof: (\w+)(?: (\d+)(?:-(\d+))?)? -->\n```text\n)(.*?)(?=^```$)", re.DOTALL | re.MULTILINE
)
_NUMBER = re.compile(r'[\d.,]*\d(<!-- proof: (\w+) "([^"]+)" -->)')
#: A number that says how fast or how large something is: with a decimal point, or before such a unit.
_CLAIM = re.compile(
    r"(?<![\w.,-])(?:\d[\d,]*\.\d+|\d[\d,]*(?= (?:times|ms|MB|GB|\w+/s|seconds)\b))(?![\w.]*\d)"
)
#: Numbers that are no measurements: versions, licences, and what is computed or chosen.
_OTHERS = re.compile(
    r"(?:Python|TensorFlow|Keras|Apache|BY|R|Ray|Slurm|MPICH|reticulate|keras3) \d[\d.]*(?: to \d[\d.]*)?"
)


def pages() -> list[Path]:
    """The pages that have numbers of the proof."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def notes() -> list[Path]:
    """The notes about the records, which the report contains."""
    return [note for name in PARTS if (note := FOLDER / f"{name}.md").exists()]


def refreshed(text: str) -> str:
    """The text of a page with the numbers that were recorded last.

    Raises:
        ValueError: What a comment names is not in the record.
    """
    return _NUMBER.sub(_number, _BLOCK.sub(_block, text))


def _block(match: re.Match[str]) -> str:
    opening, name, first, last, _ = match.groups()
    paragraphs = read(name).paragraphs
    if first:
        chosen = paragraphs[int(first) - 1 : int(last or first)]
        if len(chosen) != int(last or first) - int(first) + 1:
            raise ValueError(f"{match[1].splitlines()[0]}: {name} printed {len(paragraphs)} paragraphs.")
        paragraphs = chosen
    return opening + "\n\n".join(paragraphs) + "\n"


def _number(match: re.Match[str]) -> str:
    comment, name, text = match.groups()
    for line in read(name).printed.splitlines():
        found = re.search(rf"(?<!\w){re.escape(text)}(?!\w)", line)
        if found and (number := re.search(r"\d[\d,]*(?:\.\d+)?", line)):
            return number[0] + comment
    raise ValueError(f"{comment}: no line that {name} printed has this text and a number.")


def claims(text: str) -> Iterator[str]:
    """The measurements in the prose of a page: not in code, not in blocks."""
    no_prose = r"^ *```.*?^ *```$|`[^`]*`|<!--.*?-->|\]\([^)]*\)"
    prose = re.sub(no_prose, "", text, flags=re.DOTALL | re.MULTILINE)
    yield from (match[0] for match in _CLAIM.finditer(_OTHERS.sub("", prose)))


def report() -> str:
    """The report, as Markdown."""
    return "\n".join([_HEAD, *map(_part, recorded())])


def _part(record: Record) -> str:
    """A part of the report: how it was made, what it printed, and the note about it."""
    missed = sum(line.startswith("MISSED") for line in record.printed.splitlines())
    made = [
        f"$ {record.command}",
        record.made,
        record.machine,
        *([f"{missed} bars missed"] if missed else []),
    ]
    parts = [
        f"## {PARTS[record.name][0]}",
        _text("\n".join(made)),
        _text(record.printed.strip("\n")),
        record.note,
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _text(printed: str) -> str:
    return f"```text\n{printed}\n```"


_HEAD = """<!-- Made by tools/proof/pages.py from the records and notes in this folder. -->
# What was measured

`make proof` runs these programs. Each part says when it was run and on which machine, and shows all that it
printed.
"""


def update() -> None:
    """Bring the pages and the report up to date."""
    for page in pages():
        text = page.read_text()
        if (new := refreshed(text)) != text:
            page.write_text(new)
    REPORT.write_text(report())


if __name__ == "__main__":
    update()
