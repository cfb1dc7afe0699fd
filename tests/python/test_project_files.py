"""The files around the code agree with it: versions, help pages, the groups of the reference."""

import re

import pytest
from paths import ROOT

import tfdistr


@pytest.mark.parametrize(
    ("file", "pattern"),
    [
        ("DESCRIPTION", r"^Version: (.+)$"),
        ("CITATION.cff", r"^version: (.+)$"),
        ("NEWS.md", r"\A# tfdistr (.+)$"),
    ],
)
def test_versions_agree(file, pattern):
    assert re.findall(pattern, (ROOT / file).read_text(), re.MULTILINE) == [tfdistr.__version__]


def test_help_pages_have_no_markdown_left():
    """roxygen makes a list of a line that begins with `*`, also in the middle of code."""
    pages = {path.name: path.read_text().split("\\examples{")[0] for path in (ROOT / "man").glob("*.Rd")}
    assert pages
    assert not [name for name, text in pages.items() if "`" in text]


def test_each_public_name_is_in_a_group_of_the_reference(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools" / "site"))
    import groups
    import python_reference

    of_python = groups.grouped(python_reference.names(ROOT))
    of_r = groups.grouped(path.stem for path in (ROOT / "man").glob("*.Rd"))
    assert of_python["Train"][0] == of_r["Train"][0] == "distributed_fit"
    listed = {name for names in groups.GROUPS.values() for name in names if "*" not in name}
    known = {name for names in (*of_python.values(), *of_r.values()) for name in names}
    assert listed <= known
    with pytest.raises(LookupError, match=r"nowhere is in no group of tools/site/groups\.py"):
        groups.grouped(["nowhere"])
