"""The terms and phrases that the documents keep. `python tools/lint_words.py` prints where they do not.

Code, quoted names and link targets are left out.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: What to write, by the pattern of what not to write.
RULES = {
    r"\b(?:go|goes|going|gone) on\b|\btakes? up\b|\bbegins? anew\b": "continue, resume or restart",
    r"\bsigns? of life\b": "heartbeat",
    r"\bhalted\b": "stopped or paused",
    r"\b(?:same|other|whose|those|their) bits\b|\bbits of (?:a|an|the)\b": "bitwise identical",
    r"\bcarr(?:y|ies|ied) (?:the |its |their )?gradients\b": "that workers exchange gradients",
    r"\b[Bb]y (?:MPI|the ring)\b": "over MPI, with the ring",
    r"\btold to end\b": "preempted",
    r"\bgoodbye\b": "an unexpected exit",
    r", too\b|\btoo(?=[.;:!?|)])": "also, or nothing",
    r"\b(?!(?:versions?|strategy|instead|use)\b)\w+ of "
    r"(?:Ray|Slurm|Kubernetes|R|Python|Keras|TensorFlow|MPI|MPICH)(?![-'\w]| \d)": (
        "a noun compound, such as Slurm processes"
    ),
    r"\b[Ss]ome \d": "about",
    r"\bpages? (?:has|have)\b|\[[^]~]*~+ (?:has|have)\b": "see the page",
    r"\btravel(?:s|led)?\b": "is sent, or serialize",
    r"\btakes? (?:its|the) place\b": "pass the other instead",
    r"\bwhat lies between\b": "the parts between",
    r"\bsuch that (?:it|they) can\b": "serialize, or what is done",
    r"^#+ (?:Is |Are |Threads of|The original material|Three ways lead)": "a heading that names the task",
    r"^##+ (?:What|Which|Why|Whether|If)\b": "a heading that names the task",
}
_LEFT_OUT = re.compile(
    r"^```.*?^```$|^---\n.*?^---$|`[^`\n]*`|\]\([^)]*\)|<!--.*?-->", re.MULTILINE | re.DOTALL
)


def pages() -> list[Path]:
    """The documents that users and contributors read."""
    texts = [ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md")]
    docs = [
        page for page in sorted((ROOT / "docs").rglob("*.md")) if page.name != "report.md"
    ]  # what was printed
    return [*texts, *docs, *sorted((ROOT / "vignettes").glob("*.Rmd"))]


def found(text: str) -> Iterator[tuple[int, str, str]]:
    """Each place of a text that breaks a rule: its line, its words, and what to write."""
    text = _LEFT_OUT.sub(lambda left: re.sub(r"[^\n]", "~", left[0]), text)
    for pattern, better in RULES.items():
        for place in re.finditer(pattern.replace(" ", r"\s+"), text, re.MULTILINE):
            yield text.count("\n", 0, place.start()) + 1, " ".join(place[0].split()), better


def main() -> None:
    """Print all places; exit with status 1 if there is one."""
    lines = [
        f"{page.relative_to(ROOT)}:{line}: {words!r}: write {better}"
        for page in pages()
        for line, words, better in sorted(found(page.read_text()))
    ]
    sys.exit("\n".join(lines) or 0)


if __name__ == "__main__":
    main()
