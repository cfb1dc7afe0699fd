"""The blocks of code in the documents: what each says of itself, how it is run, and what it should print.

A comment in the line above a block of Python or R says what becomes of it:

    <!-- run -->                     the block is a script, which prints the next block, if that is text
    <!-- run: COMMAND -->            the same by another command, whose script gets the text of the block
    <!-- run with demo -->           the same after the `model` of examples/demo (or docs/start.md: start)
    <!-- run by: FILE -->            the test in FILE runs it
    <!-- not run: REASON -->         nothing runs it, for this reason

Blocks in other languages are no programs: text and console show what was printed,
sh is for a shell. A diff with
`<!-- run: python FILE.py -->` above is two programs: both of its sides run.
"""

import contextlib
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import attrs
import pytest
import warm
from paths import ROOT

PAGES = sorted(
    [ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]
)
#: Blocks of these languages are programs of a reader.
PROGRAMS = ("python", "r")
#: Blocks of these languages say by it why nothing runs them.
OTHERS = ("console", "diff", "json", "sh", "text", "yaml")

_FENCE = re.compile(r"(?:^ *<!-- ([^\n]*?) -->\n)?^( *)```([^\n]*)\n(.*?)^\2```$", re.MULTILINE | re.DOTALL)
_PARTS = re.compile(r"^Time: .*")  # of a training: parts of less than a percent are not shown
_ANY_PLACE = re.compile(
    r"(?:file://)?/(?:tmp|home)/[^\s:'\"]*|\bon \w[\w.-]*(?= (?:failed|was|\(process|has))"
)
#: What TensorFlow says of the machine, at any moment.
_OF_TENSORFLOW = re.compile(r"(\[worker \d+\] )?(WARNING: All log messages|[IWE]\d{4} \d\d:\d\d:)")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w])")
#: What comes before the process id in the table of a fit's tasks.
_TASK = re.compile(r"\b(chief|ps|worker) \d+ $")
_MARK = re.compile(r"(run|not run|run by)(?: with (\w+))?(?:: (.+))?")


@attrs.frozen
class Block:
    """A block of code of a page."""

    page: Path
    line: int
    language: str
    code: str
    #: What the comment above says: "run", "run by", "not run", or "" without such a comment.
    mark: str
    #: Where the function `model` comes from that it needs: "demo" or a page.
    after: str
    #: The command, the file of a test, or the reason.
    detail: str
    #: What it prints, if the next block is that; else None.
    output: str | None
    #: "before" or "after" for a side of a diff.
    side: str = ""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}{self.side and '-'}{self.side}"

    @property
    def file(self) -> str:
        """The name of the file that gets the code."""
        named = re.search(r"\S+\.(?:py|R)\b", self.detail)
        return named[0] if named else ("block.py" if self.language == "python" else "block.R")

    @property
    def command(self) -> list[str]:
        """What runs the block, in the folder with its script."""
        words = self.detail.split() or ["python" if self.language == "python" else "Rscript", self.file]
        programs = {"python": [sys.executable], "tfdistr": [sys.executable, "-m", "tfdistr"]}
        return [*programs.get(words[0], words[:1]), *words[1:]]


def blocks(page: Path) -> list[Block]:
    """The blocks of a page, in their order."""
    text = page.read_text()
    found = list(_FENCE.finditer(text))
    made = []
    for match, following in itertools.zip_longest(found, found[1:]):
        comment, _, language, code = match.groups()
        mark, after, detail = _said(comment or "")
        # A block with a comment of its own, such as a proof, is not what the one before prints.
        is_output = following and not following[1] and following[3] in ("text", "console")
        block = Block(
            page, text[: match.start(3)].count("\n") + 1, language, code, mark, after, detail,
            _printed(following) if is_output else None,
        )  # fmt: skip
        made += _sides(block) if language == "diff" and mark == "run" else [block]
    return made


def _sides(diff: Block) -> list[Block]:
    """The programs that a diff leads from and to. The page shows what the second one prints."""
    language = "r" if diff.file.endswith(".R") else "python"

    def side(name: str, signs: str, output: str | None) -> Block:
        lines = [line[1:] for line in diff.code.splitlines() if line[:1] in signs]
        return attrs.evolve(diff, language=language, code="\n".join([*lines, ""]), output=output, side=name)

    return [side("before", " -", None), side("after", " +", diff.output)]


def _said(comment: str) -> tuple[str, str, str]:
    match = _MARK.fullmatch(comment)
    return (match[1], match[2] or "", match[3] or "") if match else ("", "", "")


def _printed(shown: re.Match[str]) -> str:
    """The output in a block; the lines with commands of a shell are not printed by the script."""
    return re.sub(r"^\w*[$] .*\n", "", shown[4], flags=re.MULTILINE)


def programs() -> Iterator[Block]:
    for page in PAGES:
        yield from (block for block in blocks(page) if block.language in PROGRAMS)


def head(place: str, language: str) -> str:
    """The function `model` of examples/demo, or of the first block of a page, and what it needs."""
    if place == "demo":
        code = (ROOT / "examples" / ("demo.py" if language == "python" else "demo.R")).read_text()
    else:
        page = ROOT / "docs" / f"{place}.md"
        code = next(block for block in blocks(page) if block.language == language).code
    return code.split("\nfit ")[0].rstrip() + "\n\n"


def script(block: Block) -> str:
    """The whole text of the script that runs a block."""
    return (head(block.after, block.language) if block.after else "") + block.code


def environment() -> dict[str, str]:
    """The variables with which blocks run: on the processor, and in R with this Python."""
    return {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_CONFIG": "", "RETICULATE_PYTHON": sys.executable,
            "CUDA_VISIBLE_DEVICES": ""}  # fmt: skip


def lacks(block: Block) -> str | None:
    """What this machine lacks to run a block."""
    if block.language == "r" and not shutil.which("Rscript"):
        return "R"
    if block.language == "r":
        attached = re.findall(r"^library\((\w+)\)", script(block), re.MULTILINE)
        return ", ".join(name for name in attached if not has_r_package(name)) or None
    return None


@cache
def has_r_package(name: str) -> bool:
    """Whether R has a package; `make setup` installs keras3."""
    program = f"quit(status = !length(find.package('{name}', quiet = TRUE)))"
    return subprocess.run(["Rscript", "--no-init-file", "-e", program]).returncode == 0


def run(block: Block, folder: Path, timeout: float = 240) -> str:
    """What a block prints on both of its outputs. Its processes have ended afterwards."""
    (folder / block.file).write_text(script(block))
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    env = os.environ | environment() | {"TMPDIR": str(temporary)}
    shows_stack = "  File " in (block.output or "")  # that of a fork begins in its server
    is_warm = block.language == "python" and not shows_stack
    command = block.command
    if is_warm and command[1] == block.file:
        command.insert(1, warm.BORROWING)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        process = warm.start(command, env, warm=is_warm)
    try:
        return process.communicate(timeout=timeout)[0].replace(str(ROOT), "/home/me")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def difference(expected: str, printed: str) -> str | None:
    """Where a page shows something else than was printed, or None.

    A line "..." stands for any lines. Seconds, percentages, process ids, names of hosts, temporary folders
    and the parts of the time may be others, and numbers may differ as they do between processors.
    """
    lines = [line.rstrip() for line in printed.splitlines() if not _OF_TENSORFLOW.match(line)]
    at = 0
    skips = True  # packages may print something before
    for wanted in expected.rstrip().splitlines():
        if wanted.strip() == "...":
            skips = True
            continue
        found = next((i for i in range(at, len(lines)) if _alike(wanted, lines[i])), None)
        if found is None or (found > at and not skips):
            return f"The page shows:\n{wanted}\nIt printed:\n" + "\n".join(lines[at:] if not skips else lines)
        at, skips = found + 1, False
    return None


def _alike(wanted: str, line: str) -> bool:
    texts = (_PARTS.sub("", " ".join(text.split())) for text in (wanted, line))
    wanted, line = (_ANY_PLACE.sub("PLACE", text) for text in texts)
    if _NUMBER.sub("#", wanted) != _NUMBER.sub("#", line):
        return False
    numbers = zip(_NUMBER.finditer(wanted), _NUMBER.finditer(line), strict=True)
    return all(_near(one[0], other[0], wanted[: one.start()], wanted[one.end() :]) for one, other in numbers)


def _near(wanted: str, printed: str, before: str, after: str) -> bool:
    one, other = float(wanted), float(printed)
    whole = wanted.isdigit() and printed.isdigit()
    is_process = before.endswith("process ") or (_TASK.search(before) and after.startswith(" done"))
    if after.startswith((" s", " %")) or (whole and (is_process or min(one, other) > 999)):
        return True
    return one == other if whole else abs(one - other) <= max(0.05, 0.05 * abs(one))
