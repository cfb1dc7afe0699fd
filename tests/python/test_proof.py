"""The numbers of the pages are those that `make proof` recorded."""

from __future__ import annotations

import re
import sys

import pytest
from paths import ROOT

sys.path.insert(0, str(ROOT / "tools" / "proof"))
import pages
import parts
import record

NUMBER = re.compile(r"(?<![\w.,])\d[\d,]*(?:\.\d+)?(?!\.?\d)")
#: Pages that say how fast or how exact tfdistr is.
CLAIMING = [ROOT / "README.md", ROOT / "docs" / "performance.md"]
#: Numbers in their prose that were computed from those printed, and how.
COMPUTED = {
    "0.1": "0.162 - 0.014",  # ms that the shortest call of R takes more
    "0.2": "5.37 - 5.21",  # ms of a call of Python from the graph
    "0.6": "5.97 - 5.37",  # ms of an all-reduce in the small network
    "44": "44.4",  # MB
}


@pytest.mark.parametrize("page", pages.pages(), ids=lambda page: page.name)
def test_the_pages_have_the_numbers_recorded_last(page):
    assert pages.refreshed(page.read_text()) == page.read_text(), "run: python tools/proof/pages.py"


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


def test_claims_are_numbers_with_units_or_a_decimal_point():
    text = (
        "2.5 times as fast: 1,234 images/s, on Python 3.11, see `1.5 s` and [x](a1.5).\n```text\n9.9 s\n```\n"
    )
    assert list(pages.claims(text)) == ["2.5", "1,234"]


@pytest.fixture
def folder(monkeypatch, tmp_path):
    for module in (parts, pages):
        monkeypatch.setattr(module, "FOLDER", tmp_path)
    monkeypatch.setattr(
        parts, "PARTS", {"a": ("Something", "printf '2.5 x <y>\\n\\n\\n7 z\\n'"), "b": ("B", "false")}
    )
    monkeypatch.setattr(record, "PARTS", parts.PARTS)
    monkeypatch.setattr(pages, "PARTS", parts.PARTS)
    return tmp_path


def test_what_a_part_prints_comes_into_the_pages(folder):
    made = record.run("a")
    made.write()
    assert parts.read("a") == made
    text = 'It is 9.9<!-- proof: a "x <y>" --> times\n<!-- proof: a 2 -->\n```text\nold\n\nold\n```\nmore'
    new = pages.refreshed(text)
    assert new == 'It is 2.5<!-- proof: a "x <y>" --> times\n<!-- proof: a 2 -->\n```text\n7 z\n```\nmore'
    assert "x &lt;y&gt;" in pages.report()


def test_a_part_that_fails_leaves_its_record(folder):
    assert record.run("b") is None
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    ("comment", "error"),
    [
        ("<!-- proof: a 2-3 -->\n```text\n```", "printed 2 paragraphs"),
        ('1<!-- proof: a "none" -->', "no line that a"),
    ],
)
def test_a_comment_that_names_what_was_not_printed_is_an_error(folder, comment, error):
    record.run("a").write()
    with pytest.raises(ValueError, match=error):
        pages.refreshed(comment)


def test_a_part_does_not_get_the_names_of_the_parts(monkeypatch):
    command = "printf '%s\\n' \"T=$T MAKEFLAGS=$MAKEFLAGS ROUNDS=$ROUNDS\""
    monkeypatch.setattr(record, "PARTS", {"chaos": ("", command)})
    for name in ("T", "MAKEFLAGS", "ROUNDS"):
        monkeypatch.setenv(name, "chaos")
    assert record.run("chaos").printed == "T= MAKEFLAGS=s ROUNDS=chaos\n"


def test_what_is_kept_names_no_folder_of_the_machine(monkeypatch):
    monkeypatch.setattr(record, "PARTS", {"faults": ("", "printf '%s\n' \"rootdir: $PWD\"")})
    assert record.run("faults").printed == "rootdir: .\n"
