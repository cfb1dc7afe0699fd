"""What the Markdown of the repository becomes in the site: tabs, and diagrams in the colours of the page."""

from __future__ import annotations

import html
import re
from pathlib import Path

_FENCE = r"^```{language}\n.*?^```$\n"
_BOTH = re.compile(
    _FENCE.format(language="r") + r"\n+" + _FENCE.format(language="python"), re.MULTILINE | re.DOTALL
)
_COMMENT = re.compile(r"^<!--.*?-->\n", re.MULTILINE | re.DOTALL)
_DIAGRAM = re.compile(r"^!\[([^\]]*)\]\(([^)\s]+\.svg)\)$", re.MULTILINE | re.DOTALL)


def tabs(markdown: str) -> str:
    """Code in R that the same code in Python follows becomes two tabs. Comments for the tests go."""
    return _BOTH.sub(_in_tabs, _COMMENT.sub("", markdown))


def _in_tabs(match: re.Match[str]) -> str:
    parts = re.split(r"(?<=^```\n)\n+(?=^```python)", match[0], flags=re.MULTILINE)
    shown = zip(("R", "Python"), parts, strict=True)
    return "\n".join(f'=== "{title}"\n\n' + re.sub(r"^(?=.)", "    ", part, flags=re.MULTILINE) for title, part in shown)


def diagrams(markdown: str, folder: Path) -> str:
    """An image that is a diagram becomes a part of the page, so that it has the page's colours."""

    def inline(match: re.Match[str]) -> str:
        alt = html.escape(" ".join(match[1].split()), quote=True)
        svg = (folder / match[2]).read_text().strip()
        svg = re.sub(r"\n\s*\n", "\n", svg).replace("<svg ", f'<svg role="img" aria-label="{alt}" ', 1)
        return f'<div class="diagram">\n{svg}\n</div>'

    return _DIAGRAM.sub(inline, markdown)
