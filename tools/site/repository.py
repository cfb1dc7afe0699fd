"""Pages from files outside docs/: texts at the root, vignettes, notebooks, and files that pages link to."""

from __future__ import annotations

import os
import posixpath
import re
import tomllib
from functools import cache
from pathlib import Path

from notebooks import notebook

#: The pages of the site whose text is elsewhere in the repository.
TEXTS = {
    "index.md": "README.md",
    "security.md": "SECURITY.md",
    "news.md": "NEWS.md",
    "contributing.md": "CONTRIBUTING.md",
    "tutorial.md": "examples/tutorial/tutorial.ipynb",
    "tutorial-r.md": "examples/tutorial/tutorial.md",
    "guides/tfdistr.md": "vignettes/tfdistr.Rmd",
    "guides/keras3-to-cluster.md": "vignettes/keras3-to-cluster.Rmd",
    "guides/tidymodels.md": "vignettes/tidymodels.Rmd",
    "guides/custom-loops.md": "vignettes/custom-loops.Rmd",
}
_PLACES = {text: uri for uri, text in TEXTS.items()}
_LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)\s#]+)")
_CODE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_LANGUAGES = {".py": "python", ".R": "r", ".c": "c", ".md": "markdown", ".sh": "sh"}


def written_address(root: Path) -> str:
    """The address of the repository, as its files have it: tools/publish.py writes it."""
    return tomllib.loads((root / "pyproject.toml").read_text())["project"]["urls"]["Repository"]


def address(root: Path) -> str:
    """The address of the repository: that of the fork, where a workflow of GitHub builds the site."""
    repository = os.environ.get("GITHUB_REPOSITORY")
    server = os.environ.get("GITHUB_SERVER_URL", "https://github.com")
    return f"{server}/{repository}" if repository else written_address(root)


def version(root: Path) -> str:
    """The version of the package."""
    return re.search(r"^Version: (\S+)", (root / "DESCRIPTION").read_text(), re.MULTILINE)[1]


def pages(root: Path) -> dict[str, str]:
    """The text of each page that is not in docs/, by its place in the site."""
    made = {uri: _text(root / path) for uri, path in TEXTS.items()}
    return made | {_page_of(path): _source(root, path) for path in _linked(root)}


def site_links(markdown: str, uri: str, root: Path) -> str:
    """The links of a page, which lead to files of the repository, as links to pages of the site."""
    folder = posixpath.dirname(_path_of(uri))

    def link(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, match[1]))
        if path.endswith(".svg") or not (root / path).exists():
            return match[0]
        return posixpath.relpath(_page_of(path), posixpath.dirname(uri) or ".")

    return "".join(
        part if part.startswith("```") else _LINK.sub(link, part) for part in _CODE.split(markdown)
    )


def _path_of(uri: str) -> str:
    """The file of the repository that a page shows."""
    return TEXTS.get(uri, f"docs/{uri}")


def _page_of(path: str) -> str:
    """The page that shows a file of the repository."""
    if path in _PLACES:
        return _PLACES[path]
    return path.removeprefix("docs/") if path.startswith("docs/") else f"source/{path}.md"


def _text(file: Path) -> str:
    """The text of a page. A vignette's head becomes its title; its hidden chunks go."""
    text = file.read_text()
    if file.suffix == ".ipynb":
        return notebook(text)
    if file.suffix != ".Rmd":
        return text
    head, body = re.fullmatch(r"---\n(.*?)^---\n(.*)", text, re.MULTILINE | re.DOTALL).groups()
    title = re.search(r'^title: "(.*)"$', head, re.MULTILINE)[1]
    body = re.sub(r"^```\{r, include = FALSE\}\n.*?^```\n", "", body, flags=re.MULTILINE | re.DOTALL)
    return f"# {title}\n" + re.sub(r"^```\{(\w+)[^}]*\}$", r"```\1", body, flags=re.MULTILINE)


@cache
def _linked(root: Path) -> list[str]:
    """The files without a page of their own to which pages link."""
    files = [*(root / "docs").rglob("*.md"), *(root / path for path in TEXTS.values())]
    found = set()
    for file in files:
        for part in _CODE.split(file.read_text())[::2]:
            for match in _LINK.finditer(part):
                path = os.path.relpath(file.parent / match[1], root)
                if (root / path).is_file() and path not in _PLACES and not path.startswith("docs/"):
                    found.add(path)
    return sorted(found)


def _source(root: Path, path: str) -> str:
    """A page that shows a file; it is found by links, and not by the search."""
    language = _LANGUAGES.get(Path(path).suffix, "text")
    head = f"---\ntitle: {path}\nsearch: {{exclude: true}}\nhide: [toc]\n---\n"
    code = (root / path).read_text().rstrip()
    return f"{head}# {Path(path).name}\n\n`{path}`\n\n````{language}\n{code}\n````\n"
