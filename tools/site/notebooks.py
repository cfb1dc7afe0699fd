"""A Jupyter notebook as Markdown: its texts, its code, and what the code printed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any


def notebook(text: str) -> str:
    """Return the Markdown of a notebook."""
    return "\n\n".join(part for cell in json.loads(text)["cells"] for part in _cell(cell)) + "\n"


def _cell(cell: dict[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
    elif cell["cell_type"] == "code":
        yield f"```python\n{source}\n```"
        printed = "".join(map(_output, cell["outputs"])).rstrip()
        if printed:
            yield f"```text\n{printed}\n```"


def _output(output: dict[str, Any]) -> str:
    """The text of an output. Its other forms, such as pictures, are left out."""
    return (
        "".join(output["text"] if "text" in output else output.get("data", {}).get("text/plain", "")) + "\n"
    )
