"""The documents: their links lead somewhere, their promises have tests, their numbers were recorded."""

import ast
import functools
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from paths import ROOT

sys.path.insert(0, str(ROOT / "tools" / "proof"))
import pages
import parts

DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("vignettes/*.Rmd")])
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def prose(page: Path) -> str:
    """The text of a page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_links(page):
    for link in _LINK.findall(prose(page)):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link}"
        assert not anchor or anchor in anchors(target), f"{page.name}: {link}"


TEXT = (ROOT / "docs" / "architecture.md").read_text()
CORE = ROOT / "python" / "tfdistr"
PATH = re.compile(r"`([\w./-]+(?:/|\.py|\.R|\.toml))`")


def test_every_path_is_there():
    paths = set(PATH.findall(TEXT))
    assert len(paths) > 40
    missing = {path for path in paths if not (ROOT / path).exists() and not (CORE / path).exists()}
    assert not missing


def test_the_classes_and_functions_are_where_it_says():
    for name, path in re.findall(r"`(\w+)(?:\(\))?` \(`([\w./]+\.py)`\)", TEXT):
        assert re.search(rf"^(class|def) {name}\b", (CORE / path).read_text(), re.MULTILINE), (name, path)


#: The pages, and how many promises each has at least.
PAGES = {"SECURITY.md": 30, "docs/recovery.md": 15, "docs/failures.md": 15, "docs/stores.md": 10}
_TITLE = "## Tests of these promises\n"
TABLES = {page: (ROOT / page).read_text().partition(_TITLE)[2] for page in PAGES}
ROWS = [
    (page, *row)
    for page, table in TABLES.items()
    for row in re.findall(r"^\| (?!Promise )([^|]+) \| ([^|]+) \|$", table, re.MULTILINE)
]


@functools.cache
def named_in(file: str) -> set[str]:
    """The names of the tests in a file."""
    path = ROOT / file if file.startswith("tests/") else ROOT / "tests" / "python" / file
    tree = ast.parse(path.read_text())
    functions = [each.name for each in tree.body if isinstance(each, ast.FunctionDef)]
    return {name for name in functions if name.startswith("test_")}


@pytest.mark.parametrize("page", PAGES)
def test_there_is_a_table(page: str) -> None:
    promises = [promise for of, promise, _ in ROWS if of == page]
    assert len(promises) >= PAGES[page]
    # A row of another form would be left out.
    assert len(promises) == TABLES[page].count("\n| ") - 1
    assert len(set(promises)) == len(promises)


@pytest.mark.parametrize(("page", "promise", "tests"), ROWS, ids=[promise for _, promise, _ in ROWS])
def test_a_promise_has_tests(page: str, promise: str, tests: str) -> None:
    named = re.findall(r"`([\w./]+\.py)::(\w+)`", tests)
    assert ", ".join(f"`{file}::{name}`" for file, name in named) == tests
    for file, name in named:
        assert name in named_in(file), f"{page}: {promise}: {file} has no {name}"


def test_the_environment_variables_are_on_their_page():
    page = set(re.findall(r"`(TFDISTR_\w+)`", (ROOT / "docs" / "environment.md").read_text()))
    code = [*CORE.rglob("*.py"), *(ROOT / "R").glob("*.R")]
    used = {name for file in code for name in re.findall(r'"(TFDISTR_\w*[A-Z])"', file.read_text())}
    assert page == used


NUMBER = re.compile(r"(?<![\w.,])\d[\d,]*(?:\.\d+)?(?!\.?\d)")
#: Pages that say how fast or how exact tfdistr is.
CLAIMING = [ROOT / "README.md", ROOT / "docs" / "performance.md", *pages.notes()]
#: Numbers in their prose that were computed from those printed, and how.
COMPUTED = {
    "44": "44.4",  # MB
}


@pytest.mark.parametrize("page", pages.pages(), ids=lambda page: page.name)
def test_the_pages_have_the_numbers_recorded_last(page):
    assert pages.refreshed(page.read_text()) == page.read_text(), "run: python tools/proof/pages.py"


def test_the_line_of_a_number_has_its_text_as_whole_words(monkeypatch):
    made = SimpleNamespace(printed="async: ours / theirs: 1.13\nsync: ours / theirs: 0.74\n")
    monkeypatch.setattr(pages, "read", lambda name: made)
    text = 'It is 9.99<!-- proof: ps "sync: ours" --> times as fast.'
    assert pages.refreshed(text) == text.replace("9.99", "0.74")


def test_the_report_has_them_too():
    assert pages.REPORT.read_text() == pages.report(), "run: python tools/proof/pages.py"


@pytest.mark.parametrize("page", CLAIMING, ids=lambda page: page.name)
def test_a_number_in_the_prose_was_printed_or_computed(page):
    text = "\n".join(made.printed for made in parts.recorded())
    printed = set(NUMBER.findall(text))
    for claim in set(pages.claims(page.read_text())) - printed:
        how = COMPUTED.get(claim)
        assert how, f"{page.name} says {claim}, which no part printed"
        assert set(NUMBER.findall(how)) - {"2", "1000"} <= printed, f"{claim} = {how}: no part printed these"
        assert f"{eval(how.replace(',', '')):.{len(claim.partition('.')[2])}f}" == claim, (
            f"{claim} is not {how}"
        )
