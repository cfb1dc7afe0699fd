"""The repository's address and the maintainer: pyproject.toml has them, and other files repeat them.

Usage: publish.py set ADDRESS NAME EMAIL   write them into all files of the repository
       publish.py check                    fail while they are the placeholder
       publish.py links FOLDER             make links of README.md and vignettes absolute, for PyPI and CRAN
"""

from __future__ import annotations

import posixpath
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
#: A part of the address and of the email as long as nobody knows them. Nobody can own a name in `.example`.
PLACEHOLDER = "to-be-named.example"
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s]+)")


class Origin(NamedTuple):
    """Where the packages come from, and whom to write to."""

    address: str
    name: str
    email: str


def origin(root: Path = ROOT) -> Origin:
    """Return what pyproject.toml has."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    (author,) = project["authors"]
    return Origin(project["urls"]["Repository"], author["name"], author["email"])


def version(root: Path = ROOT) -> str:
    """Return the version of both packages."""
    return re.findall(r'"(\d.+)"', (root / "python/tfdistr/_version.py").read_text())[0]


def files_with(text: str, root: Path = ROOT) -> list[str]:
    """Return the files of the repository that have this text, but for this one."""
    command = ["git", "grep", "--untracked", "-lIF", "-e", text, "--", ".", ":!tools/publish.py"]
    return subprocess.run(command, cwd=root, capture_output=True, text=True).stdout.splitlines()


def change(new: Origin, root: Path = ROOT) -> str | None:
    """Replace the address and the maintainer in all files; return what is wrong with them."""
    if not (
        re.fullmatch(r"https://[^/\s]+(/[^/\s]+)+", new.address)
        and new.name
        and re.fullmatch(r"\S+@\S+", new.email)
    ):
        return (
            "The address must be that of a repository, and the maintainer must have a name and an email.\n"
            f"Received: {', '.join(new)}\n"
            'Fix: Pass https://github.com/OWNER/tfdistr "Jane Doe" jane@doe.org, for example.'
        )
    for before, after in zip(origin(root), new, strict=True):
        for path in files_with(before, root):
            (root / path).write_text((root / path).read_text().replace(before, after))
    return None


def check(root: Path = ROOT) -> str | None:
    """Return why the packages cannot be published, or nothing."""
    files = files_with(PLACEHOLDER, root)
    if not files:
        return None
    return (
        "Cannot publish without the repository's address and a maintainer.\n"
        f"Received: {PLACEHOLDER} in {', '.join(files)}\n"
        'Fix: Run python3 tools/publish.py set https://github.com/OWNER/tfdistr "NAME" EMAIL, and commit.'
    )


def absolute_links(file: Path, root: Path) -> str:
    """Return the text of a file of the repository whose links lead to the files of this version."""
    base = f"{origin(root).address}/blob/v{version(root)}/"
    folder = file.parent.relative_to(root).as_posix()

    def absolute(link: re.Match[str]) -> str:
        return base + posixpath.normpath(posixpath.join(folder, link[1]))

    parts = re.split(r"(^```.*?^```$)", file.read_text(), flags=re.MULTILINE | re.DOTALL)
    parts[::2] = [_LINK.sub(absolute, part) for part in parts[::2]]
    return "".join(parts)


def main(arguments: list[str]) -> str | None:
    """Do what the command line says; return what is wrong."""
    match arguments:
        case ["set", address, name, email]:
            return change(Origin(address.rstrip("/"), name, email))
        case ["check"]:
            return check()
        case ["links", folder]:
            root = Path(folder)
            for file in (root / "README.md", *root.glob("vignettes/*.Rmd")):
                file.write_text(absolute_links(file, root))
            return None
    return __doc__


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
