"""What the Markdown of the repository becomes in the site: tabs, and diagrams in the colours of the page."""

from __future__ import annotations

import html
import re
from pathlib import Path

_FENCE = r"^```{language}\n.*?^```$\n"
_BOTH = re.compile(
    "|".join(
        _FENCE.format(language=r) + r"\n+" + _FENCE.format(language=python)
        for r, python in (("r", "python"), ("diff", "diff"))
    ),
    re.MULTILINE | re.DOTALL,
)
_COMMENT = re.compile(r"^<!--.*?-->\n", re.MULTILINE | re.DOTALL)
_SCRIPTS = re.compile(r"^<!-- scripts: (\S+) -->$", re.MULTILINE)
_DIAGRAM = re.compile(r"^!\[([^\]]*)\]\(([^)\s]+\.svg)\)$", re.MULTILINE | re.DOTALL)


def tabs(markdown: str) -> str:
    """Make two tabs of R code and the Python code after it, or of their diffs. Comments for the tests go."""
    return _BOTH.sub(_in_tabs, _COMMENT.sub("", markdown))


def _in_tabs(match: re.Match[str]) -> str:
    parts = re.split(r"(?<=^```\n)\n+(?=^```(?:python|diff)$)", match[0], flags=re.MULTILINE)
    shown = zip(("R", "Python"), parts, strict=True)
    return "\n".join(f'=== "{title}"\n\n{_indented(part)}' for title, part in shown)


def scripts(markdown: str, root: Path) -> str:
    """A comment that names scripts without their suffix becomes these scripts, in R and in Python, folded."""

    def folded(match: re.Match[str]) -> str:
        code = [(root / f"{match[1]}{suffix}").read_text().rstrip() for suffix in (".R", ".py")]
        both = f"```r\n{code[0]}\n```\n\n```python\n{code[1]}\n```\n"
        return f'??? example "The scripts"\n\n{_indented(_BOTH.sub(_in_tabs, both))}'

    return _SCRIPTS.sub(folded, markdown)


def _indented(text: str) -> str:
    return re.sub(r"^(?=.)", "    ", text, flags=re.MULTILINE)


def _in_colours_of_the_page(svg: str) -> str:
    """A Matplotlib picture without its head and its white paper, with ink that the page's style chooses."""
    svg = re.sub(r"^.*?(?=<svg )|<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    for paper, ink in (
        ("fill: #ffffff", "fill: none"),
        ("#000000", "var(--ink)"),
        ("#555555", "var(--ink)"),
        ("#cccccc", "var(--line)"),
    ):
        svg = svg.replace(paper, ink)
    return svg


def diagrams(markdown: str, folder: Path) -> str:
    """An image that is a diagram becomes a part of the page, so that it has the page's colours."""

    def inline(match: re.Match[str]) -> str:
        alt = html.escape(" ".join(match[1].split()), quote=True)
        svg = _in_colours_of_the_page((folder / match[2]).read_text().strip())
        svg = re.sub(r"\n\s*\n", "\n", svg).replace("<svg ", f'<svg role="img" aria-label="{alt}" ', 1)
        return f'<div class="diagram">\n{svg}\n</div>'

    return _DIAGRAM.sub(inline, markdown)
