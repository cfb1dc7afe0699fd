"""The repository's address and the maintainer: pyproject.toml has them, and all other files have the same."""

import re
import runpy
import subprocess
import tomllib
from pathlib import Path

import pytest
from paths import ROOT

PUBLISH = runpy.run_path(str(ROOT / "tools" / "publish.py"))
ORIGIN = PUBLISH["origin"]()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
#: The files that have the address.
FILES = sorted(PUBLISH["files_with"](ORIGIN.address))
CLONED = re.compile(r"(?:git clone |git\+)([^\s\"]+)")


@pytest.mark.parametrize(
    ("file", "pattern", "expected"),
    [
        ("DESCRIPTION", r"^URL: (.+)$", ORIGIN.address),
        ("DESCRIPTION", r"^BugReports: (.+)$", f"{ORIGIN.address}/issues"),
        ("DESCRIPTION", r"person\((.+), role", f'"{ORIGIN.name}", email = "{ORIGIN.email}"'),
        ("CITATION.cff", r"^repository-code: (.+)$", ORIGIN.address),
        ("CITATION.cff", r"^  - name: (.+)$", ORIGIN.name),
        ("CITATION.cff", r"^    email: (.+)$", ORIGIN.email),
        ("man/tfdistr-package.Rd", r"Maintainer\}: (.+)\}$", f"{ORIGIN.name} \\email{{{ORIGIN.email}"),
    ],
)
def test_each_file_has_the_address_and_the_maintainer(file, pattern, expected):
    assert re.findall(pattern, (ROOT / file).read_text(), re.MULTILINE) == [expected]


def test_pages_clone_from_the_address_and_projects_link_to_it():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    cloned = [address for page in pages for address in CLONED.findall(page.read_text())]
    assert len(cloned) > 5
    assert set(cloned) == {ORIGIN.address}
    assert all(url.startswith(ORIGIN.address) for url in PROJECT["urls"].values())


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with a copy of each file that has the address."""
    for path in [*FILES, "python/tfdistr/_version.py"]:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes((ROOT / path).read_bytes())
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    return tmp_path


def test_one_command_writes_them_everywhere(checkout):
    unknown = PUBLISH["PLACEHOLDER"]
    PUBLISH["change"](PUBLISH["Origin"](f"https://{unknown}/t", "A B", f"a@{unknown}"), checkout)
    refused = PUBLISH["check"](checkout)
    what = "Cannot publish without the repository's address and a maintainer."
    assert refused.startswith(f"{what}\nReceived: {unknown} in {FILES[0]}, ")
    assert all(path in refused for path in FILES)
    new = PUBLISH["Origin"]("https://github.com/jane/tfdistr", "Jane Doe", "jane@doe.org")
    PUBLISH["change"](new, checkout)
    assert PUBLISH["check"](checkout) is None
    assert PUBLISH["origin"](checkout) == new
    assert 'person("Jane Doe", email = "jane@doe.org"' in (checkout / "DESCRIPTION").read_text()
    assert "git clone https://github.com/jane/tfdistr &&" in (checkout / "README.md").read_text()


def test_a_release_is_refused_before_anything_is_built():
    script = (ROOT / "tools" / "release.sh").read_text()
    assert script.index("tools/publish.py check") < script.index("uv.sh build")


def test_links_of_the_readme_are_absolute_in_the_packages(checkout):
    PUBLISH["main"](["links", str(checkout)])
    before, after = (ROOT / "README.md").read_text(), (checkout / "README.md").read_text()
    base = f"{ORIGIN.address}/blob/v{PUBLISH['version']()}/"
    links = re.findall(r"\]\(([^)\s]+)\)", after)
    assert f"{base}docs/install.md" in links
    assert f"{base}docs/failures.md" in links
    assert all(link.startswith("https://") for link in links)
    assert after.replace(base, "") == before
