"""The pages of the Python reference: one for each public name, from its docstring, and a list of them all."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Any

from groups import grouped, listed

#: Modules with public names of their own, and their names.
_SUBMODULES = {"testing": ("assert_same_fit",), "schemas": ("read", "load_schema", "validate")}

#: Classes whose public methods are partly those of a base class that is not public.
_INHERITING = {"FitResult": "    options:\n      inherited_members: true\n"}


def navigation(root: Path) -> list[dict[str, Any] | str]:
    """The part of the navigation: the list, and a page for each name."""
    groups = grouped(names(root))
    return [
        "python/index.md",
        *({group: [{name: f"python/{name}.md"} for name in members]} for group, members in groups.items()),
    ]


def pages(root: Path) -> dict[str, str]:
    """The text of each page, by its place in the site."""
    rows: dict[str, str] = {}
    made = {}
    for name, (module, sentence) in names(root).items():
        made[f"python/{name}.md"] = (
            f"---\ntitle: {name} (Python)\n---\n::: {module}\n{_INHERITING.get(name, '')}"
        )
        rows[name] = f"| [`{name}`]({name}.md) | {sentence} |"
    head = "# Python reference\n\nAll public names of `tfdistr`; `help()` shows the same text."
    made["python/index.md"] = f"{head}\n\n{listed(names(root), rows)}"
    return made


@cache
def names(root: Path) -> dict[str, tuple[str, str]]:
    """Each public name, with its whole path and the first sentence of its docstring."""
    package = root / "python" / "tfdistr"
    found = {}
    for name, module in _public(package).items():
        found[name] = (f"tfdistr.{module}.{name}", _sentence(_file(package, module), name))
    for module, members in _SUBMODULES.items():
        for name in members:
            found[f"{module}.{name}"] = (f"tfdistr.{module}.{name}", _sentence(_file(package, module), name))
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def _public(package: Path) -> dict[str, str]:
    """The public names, and the modules that define them."""
    body = ast.parse((package / "__init__.py").read_text()).body
    imports = [node for block in body if isinstance(block, ast.If) for node in block.body]
    return {
        name.name: node.module.removeprefix("tfdistr.")
        for node in imports
        for name in node.names
        if name.name not in _SUBMODULES
    }


def _file(package: Path, module: str) -> Path:
    path = package.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _sentence(file: Path, name: str) -> str:
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            text = ast.get_docstring(node)
            if text:  # an overload has none
                return " ".join(text.split("\n\n")[0].split()).replace("|", "\\|")
    raise LookupError(f"{file} does not describe {name}")
