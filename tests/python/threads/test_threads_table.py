"""docs/threads.md and the tests of threads name each other."""

import re

from paths import ROOT

ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in (ROOT / "docs" / "threads.md").read_text().splitlines()
    if line.startswith("| [")
]
PYTHON = re.compile(r"`(\w+\.py)::(\w+)`")


def test_each_row_has_its_test_and_each_test_of_threads_its_row():
    named = {found for *_, cell in ROWS for found in PYTHON.findall(cell)}
    assert len(named) > 10
    files = {file: path.read_text() for file, _ in named for path in (ROOT / "tests").rglob(file)}
    assert {(file, name) for file, name in named if f"\ndef {name}(" not in files[file]} == set()
    own = {
        (path.name, name) for path in (ROOT / "tests" / "python" / "threads").glob("test_threads_o*.py")
        for name in re.findall(r"^def (test_\w+_\d+)\(", path.read_text(), re.M)
    }  # fmt: skip
    assert own <= named


def test_the_tests_of_r_are_there():
    cells = [(thread, cell) for thread, *_, cell in ROWS if ".R`" in cell]
    assert cells
    for thread, cell in cells:
        ((file, name),) = re.findall(r'`(test-\w+\.R)`: "(.+)"', cell)
        titles = re.findall(
            r'^test_that\("(.+)", \{$', (ROOT / "tests" / "testthat" / file).read_text(), re.M
        )
        (title,) = [title for title in titles if name in title]
        for number in re.findall(r"#(\d+)\]", thread):
            assert re.search(rf"#{number}\b", title), (number, title)
