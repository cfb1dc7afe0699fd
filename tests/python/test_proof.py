"""The numbers of the pages are those that `make proof` recorded."""

import re
import sys

import pytest
from paths import ROOT

sys.path.insert(0, str(ROOT / "tools" / "proof"))
import pages
import parts

NUMBER = re.compile(r"(?<![\w.,])\d[\d,]*(?:\.\d+)?(?!\.?\d)")
#: Pages that say how fast or how exact tfdistr is.
CLAIMING = [ROOT / "README.md", ROOT / "docs" / "performance.md"]
#: Numbers in their prose that were computed from those printed, and how.
COMPUTED = {
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
