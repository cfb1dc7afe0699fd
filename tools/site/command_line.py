"""docs/command-line.md, from the command's own help: `python tools/site/command_line.py` writes it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "command-line.md"
_HEAD = """<!-- Made by tools/site/command_line.py. -->
# Command line

`pip` and `make setup` install the command `tfdistr`; `python -m tfdistr` is the same. The exit status is 0 if
all went well, and 75 if a job was preempted and saved a checkpoint. See also [`tfdistr run`](run.md),
[parameter servers](parameter-servers.md) and [Kubernetes](clusters/kubernetes.md).
"""


def page() -> str:
    """The text of the page."""
    from tfdistr.cli.main import _parser

    os.environ["COLUMNS"] = "84"
    parts = (
        f"## {parser.prog}\n\n```text\n{parser.format_help().rstrip()}\n```\n"
        for parser in _leaves(_parser())
    )
    return "\n".join([_HEAD, *parts])


def _leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The commands below a parser that its help lists, and that have no commands themselves."""
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for group in groups:
        for listed in group._choices_actions:
            yield from _leaves(group.choices[listed.dest])
    if not groups:
        yield parser


if __name__ == "__main__":
    PAGE.write_text(page())
