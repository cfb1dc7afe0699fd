"""The files around the code agree with it: versions, NEWS.md, what the R package leaves out, hooks."""

import re

import pytest
from paths import ROOT

import tfdistr

GROUPS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


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


def test_news_has_the_groups_of_keep_a_changelog():
    news = (ROOT / "NEWS.md").read_text()
    versions = re.findall(r"^# (.+)$", news, re.MULTILINE)
    assert all(re.fullmatch(r"tfdistr \d+\.\d+\.\d+", version) for version in versions)
    newest = re.split(r"^# .+$", news, flags=re.MULTILINE)[1]
    groups = re.findall(r"^## (.+)$", newest, re.MULTILINE)
    assert groups
    assert set(groups) <= GROUPS
    assert len(groups) == len(set(groups))
    assert newest.lstrip().startswith("## "), "a line is in no group"


def test_help_pages_have_no_markdown_left():
    """roxygen makes a list of a line that begins with `*`, also in the middle of code."""
    pages = {path.name: path.read_text().split("\\examples{")[0] for path in (ROOT / "man").glob("*.Rd")}
    assert pages
    assert not [name for name, text in pages.items() if "`" in text]


def test_each_slow_test_has_a_reason():
    """Beside the marker, or in a comment above what uses ``mostly_slow()``."""
    without = []
    for path in (ROOT / "tests").rglob("test*.[pR]*"):
        lines = path.read_text().splitlines() if path.suffix in (".py", ".R") else []
        for number, line in enumerate(lines):
            marked = re.search(r"mark\.slow(?!\(reason=\"\S)|skip_slow\((?!\"\S)", line)
            above = lines[max(0, number - 4) : number]
            hidden = "mostly_slow(" in line and not any(each.startswith("# Slow: ") for each in above)
            if (marked or hidden) and path.name != "test_project_files.py":
                without.append(f"{path.relative_to(ROOT)}:{number + 1}")
    assert not without


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
