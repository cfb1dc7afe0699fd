"""All errors that the package and R raise, as their code has them: `python tools/site/messages.py`.

What the code puts into a text has a name in {braces}. Texts of which it chooses one are rows of their own.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "tfdistr"
ERRORS = set(re.findall(r"^class (\w+Error)\(", (PACKAGE / "errors.py").read_text(), re.MULTILINE))
#: A text of R's code; an error up to its text; its fix.
_R_TEXT = r"""(?:sprintf\()?("(?:[^"\\]|\\.)*"|'[^']*')"""
ABORT = re.compile(rf'\babort\(\s*"(\w+)",\s*{_R_TEXT}')
R_FIX = re.compile(f"fix = {_R_TEXT}")
#: What names stand for at a place of the code.
Known = Mapping[str, ast.expr]


class Message(NamedTuple):
    """What an error says; a part that it lacks is empty."""

    place: str
    error: str
    message: str
    received: str
    fix: str


def texts(node: ast.expr | None, known: Known) -> list[str]:
    """The texts that an expression can be."""
    match node:
        case None | ast.Constant(None):
            return [""]
        case ast.Constant(value):
            return [str(value)]
        case ast.JoinedStr(parts):
            return _joined(texts(part, known) for part in parts)
        case ast.BinOp(left, ast.Add(), right):
            return _joined(texts(part, known) for part in (left, right))
        case ast.IfExp(_, one, other):
            return [*texts(one, known), *texts(other, known)]
        case ast.BoolOp(ast.Or(), parts):
            return list(filter(None, (text for part in parts for text in texts(part, known))))
        case ast.FormattedValue(value):
            return texts(value, known)
        case ast.Name(name) if name in known:
            return texts(known[name], {other: known[other] for other in known if other != name})
    return [f"{{{_label(node)}}}"]


def _label(node: ast.expr) -> str:
    """A name for what the code puts in."""
    match node:
        case ast.Name(name) | ast.Attribute(_, name):
            return name
        case ast.Call(function, arguments):
            return _label(arguments[-1] if arguments else function)
        case ast.Subscript(value):
            return _label(value)
        case ast.GeneratorExp(_, [of, *_]):
            return _label(of.iter)
    return "..."


def _joined(parts: Iterator[list[str]]) -> list[str]:
    return ["".join(chosen) for chosen in itertools.product(*parts)]


def assigned(body: ast.AST) -> dict[str, ast.expr]:
    """The names that a module or a function gives one text."""
    found: dict[str, list[ast.expr]] = {}
    for node in body.body if isinstance(body, ast.Module) else ast.walk(body):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found.setdefault(node.targets[0].id, []).append(node.value)
    kinds = ast.Constant | ast.JoinedStr | ast.BinOp | ast.IfExp
    return {name: each[0] for name, each in found.items() if len(each) == 1 and isinstance(each[0], kinds)}


def given(function: ast.FunctionDef, call: ast.Call) -> dict[str, ast.expr]:
    """The arguments of a call by their names."""
    asked = function.args
    names = [one.arg for one in asked.args if one.arg not in ("self", "cls")]
    made = {one.arg: value for one, value in zip(asked.kwonlyargs, asked.kw_defaults, strict=True) if value}
    made |= zip(names[len(names) - len(asked.defaults) :], asked.defaults, strict=True)
    return made | dict(zip(names, call.args, strict=False)) | {w.arg: w.value for w in call.keywords if w.arg}


class Module:
    """A file of the package.

    Attributes:
        texts: What its names stand for.
        calls: The calls in it, by the last name of what is called.
        imported: The names that it imports.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.tree = path, ast.parse(path.read_text())
        self.texts = assigned(self.tree)
        self.calls: dict[str, list[ast.Call]] = {}
        self.imported: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call):
                self.calls.setdefault(ast.unparse(node.func).rpartition(".")[2], []).append(node)
            elif isinstance(node, ast.ImportFrom):
                self.imported |= {alias.name for alias in node.names}

    def errors(self) -> Iterator[tuple[ast.Call, ast.FunctionDef]]:
        """The calls that make an error, each with the innermost function around it."""
        inside: dict[ast.AST, ast.FunctionDef] = {}
        for function in ast.walk(self.tree):  # an inner function comes after the one around it
            if isinstance(function, ast.FunctionDef):
                inside |= dict.fromkeys(ast.walk(function), function)
        made = (call for name in ERRORS for call in self.calls.get(name, []) if call in inside)
        return ((call, inside[call]) for call in sorted(made, key=lambda call: call.lineno))


def of_python() -> Iterator[Message]:
    """The errors of the package; those whose text a function is given, for each call of the function."""
    modules = [Module(path) for path in sorted(PACKAGE.rglob("*.py"))]
    constants = {name: text for one in modules for name, text in one.texts.items() if name.isupper()}
    for module in modules:
        for call, around in module.errors():
            words = {word.arg: word.value for word in call.keywords}
            parts = [
                call.args[0] if call.args else words.get("message"),
                words.get("received"),
                words.get("fix"),
            ]
            own = constants | module.texts | assigned(around)
            asked = {
                node.id for part in parts if part for node in ast.walk(part) if isinstance(node, ast.Name)
            }
            is_given = asked & {one.arg for one in (*around.args.args, *around.args.kwonlyargs)}
            users = (
                [each for each in modules if each is module or around.name in each.imported]
                if is_given
                else []
            )
            callers = [each for user in users for each in user.calls.get(around.name, [])]
            for known in [own | given(around, each) for each in callers] or [own]:
                message, received, fix = (texts(part, known) for part in parts)
                for said, mended in itertools.product(message, fix):
                    place = f"{module.path.relative_to(ROOT)}:{call.lineno}"
                    yield Message(place, ast.unparse(call.func), said, " / ".join(received), mended)


def of_r() -> Iterator[Message]:
    """The errors of R."""
    for path in sorted((ROOT / "R").glob("*.R")):
        text = path.read_text()
        for found in ABORT.finditer(text):
            fix = R_FIX.search(text, found.end())
            kind = "tfdistr" if found[1] == "error" else found[1]
            name = f"{kind.title().replace('_', '')}Error"
            line = text.count("\n", 0, found.start()) + 1
            yield Message(f"R/{path.name}:{line}", name, _said(found[2]), "", _said(fix[1]) if fix else "")


def _said(text: str) -> str:
    """What a text of R's code says, with braces for what sprintf() puts in."""
    return re.sub("%[sd]", "{...}", re.sub(r"\\(.)", r"\1", text[1:-1]))


def messages() -> list[Message]:
    """All errors, each of their texts once."""
    return list({(each.place, each.message, each.fix): each for each in [*of_python(), *of_r()]}.values())


if __name__ == "__main__":
    for row in [Message("Place", "Class", "What failed", "Received", "Fix"), *messages()]:
        print("| " + " | ".join(part.replace("|", "\\|").replace("\n", "<br>") for part in row) + " |")
