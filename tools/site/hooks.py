"""What MkDocs calls while it builds the site: pages from the repository, and what their Markdown becomes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import blocks
import python_reference
import r_reference
import repository
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]


def on_config(config: Any) -> Any:
    """The references have as many pages as there are names, so their part of the navigation is made here."""
    sections = {"Python": python_reference.navigation(ROOT), "R": r_reference.navigation(ROOT)}
    for entry in config.nav:
        for title in entry.keys() & sections.keys():
            entry[title] = sections[title]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that are not in docs/."""
    made = python_reference.pages(ROOT) | r_reference.pages(ROOT) | repository.pages(ROOT)
    for uri, content in sorted(made.items()):
        files.append(File.generated(config, uri, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The Markdown of a page, with what the site adds to it."""
    uri = page.file.src_uri
    markdown = repository.site_links(markdown, uri, ROOT)
    markdown = blocks.diagrams(markdown, ROOT / "docs" / Path(uri).parent)
    return blocks.tabs(blocks.scripts(markdown, ROOT))
