"""What MkDocs calls while it builds the site: pages from the repository, and what their Markdown becomes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import blocks
import finish
import message_pages
import python_reference
import r_reference
import references
import repository
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]


def on_config(config: Any) -> Any:
    """Adds what the repository says of itself, and the references: a page for each name."""
    sections = {"Python": python_reference.navigation(ROOT), "R": r_reference.navigation(ROOT)}
    config.extra["version"] = repository.version(ROOT)
    config.repo_url = repository.address(ROOT)
    config.repo_name = "Source"
    parts = {title: entry[title] for entry in config.nav for title in entry}
    parts["Troubleshooting"].append({"Messages": message_pages.navigation()})
    for entry in parts["Reference"]:
        if isinstance(entry, dict):
            entry.update((title, sections[title]) for title in entry.keys() & sections.keys())
    return config


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that are not in docs/."""
    made = (
        python_reference.pages(ROOT)
        | r_reference.pages(ROOT)
        | repository.pages(ROOT)
        | message_pages.pages()
        | {"javascripts/messages-index.js": message_pages.index()}
    )
    for uri, content in sorted(made.items()):
        files.append(File.generated(config, uri, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The Markdown of a page, with what the site adds to it."""
    uri = page.file.src_uri
    if uri.startswith("proof/"):
        page.meta["search"] = {"exclude": True}  # thousands of lines that programs printed
    if line := references.other_language(uri, ROOT):
        markdown += f"\n\n{line}\n"
    markdown = markdown.replace(repository.written_address(ROOT), repository.address(ROOT))
    markdown = repository.site_links(markdown, uri, ROOT)
    markdown = blocks.diagrams(markdown, ROOT / "docs" / Path(uri).parent)
    return blocks.tabs(blocks.scripts(markdown, ROOT))


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """The HTML of a page: readable on any width, with links to the references."""
    uri = page.file.src_uri
    if not uri.startswith("source/"):
        html = references.linked(html, uri, ROOT)
    return finish.outputs(finish.tables(finish.summary_first(html)))
