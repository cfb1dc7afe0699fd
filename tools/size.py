"""How large the project is, beside a commit of its past.

    python tools/size.py --since ba6d9d0d

Code is what is left of lines without docstrings, comments and blanks. A circle of imports is a set of files
each of which imports, at once or when called, all the others in the end.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import tempfile
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "python/tfdistr"
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
MOST_LINES, MOST_FIELDS, MOST_FILES = 50, 12, 3


def code_lines(text: str, tree: ast.Module) -> set[int]:
    """The numbers of the lines that are code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | FUNCTION) and ast.get_docstring(node) is not None:
            docstring = node.body[0]
            lines.difference_update(range(docstring.lineno, (docstring.end_lineno or 0) + 1))
    return lines


def fields(node: ast.ClassDef) -> int:
    """How many attributes a class declares, and sets on itself."""
    names = {
        item.target.id
        for item in node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }
    for item in ast.walk(node):
        if (
            isinstance(item, ast.Attribute)
            and isinstance(item.ctx, ast.Store)
            and ast.unparse(item.value) == "self"
        ):
            names.add(item.attr)
    return len(names)


def imported(tree: ast.Module, module: str, modules: set[str], is_package: bool) -> Iterator[str]:
    """The modules of the package that a module imports, but those for annotations only."""
    skipped = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            parts = module.split(".")
            above = parts[: len(parts) - node.level + is_package] if node.level else []
            source = ".".join([*above, *filter(None, [node.module])])
            for alias in node.names:
                name = f"{source}.{alias.name}"
                if name in modules or source in modules:
                    yield name if name in modules else source


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The sets of modules that reach each other."""
    reach = {name: set(targets) for name, targets in graph.items()}
    changed = True
    while changed:
        changed = False
        for name, found in reach.items():
            more = found.union(*(reach[target] for target in found))
            if more != found:
                reach[name], changed = more, True
    groups = {tuple(sorted(b for b in reach[a] if a in reach[b])) for a in graph if a in reach[a]}
    return [list(group) for group in groups if len(group) > MOST_FILES]


def measure(root: Path, details: bool) -> dict[str, int]:
    """Every figure of the table, by name."""
    count: dict[str, int] = {}
    graph: dict[str, set[str]] = {}
    files = {path: ast.parse(path.read_text()) for path in sorted((root / PACKAGE).rglob("*.py"))}
    names = {
        path: ".".join(path.relative_to(root / "python").with_suffix("").parts).removesuffix(".__init__")
        for path in files
    }
    count["files of the package"] = len(files)
    for path, tree in files.items():
        text = path.read_text()
        code = code_lines(text, tree)
        notes = []
        for node in ast.walk(tree):
            if isinstance(node, FUNCTION):
                size = len(code.intersection(range(node.lineno, (node.end_lineno or 0) + 1)))
                if size > MOST_LINES:
                    notes.append(f"function {node.name}: {size} lines")
            if isinstance(node, ast.ClassDef) and (has := fields(node)) > MOST_FIELDS:
                notes.append(f"class {node.name}: {has} fields")
        figures = {
            "its lines": text.count("\n"),
            "its lines of code": len(code),
            f"functions over {MOST_LINES} lines": sum(note.startswith("function") for note in notes),
            f"classes over {MOST_FIELDS} fields": sum(note.startswith("class") for note in notes),
            "lines with Any": len(re.findall(r"^.*\bAny\b", text, re.MULTILINE)),
        }
        for name, value in figures.items():
            count[name] = count.get(name, 0) + value
        for note in notes if details else []:
            print(f"{path.relative_to(root)}: {note}")
        is_package = path.name == "__init__.py"
        graph[names[path]] = set(imported(tree, names[path], set(names.values()), is_package)) - {names[path]}
    found = circles(graph)
    for group in found if details else []:
        print(f"circle: {', '.join(group)}")
    count[f"circles over {MOST_FILES} files"] = len(found)
    for part, folders in {
        "tests": ["tests"],
        "benchmarks and tools": ["benchmarks", "tools"],
        "R": ["R"],
    }.items():
        kinds = {".py", ".R", ".sh"}
        texts = [
            path.read_text()
            for folder in folders
            for path in (root / folder).rglob("*")
            if path.suffix in kinds
        ]
        count[f"lines of {part}"] = sum(text.count("\n") for text in texts)
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--since", default="HEAD", help="the commit to compare with")
    since = parser.parse_args().since
    archive = subprocess.run(["git", "archive", since], cwd=ROOT, capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        then = measure(Path(folder), details=False)
    now = measure(ROOT, details=True)
    for name, value in now.items():
        print(f"{name:28s} {then[name]:8,d} {value:8,d} {value - then[name]:+8,d}")


if __name__ == "__main__":
    main()
