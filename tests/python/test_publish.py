"""The repository's address and the maintainer: pyproject.toml has them, and all other files have the same."""

import hashlib
import re
import runpy
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
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
    """A repository with a copy of each file that has the address, and a vignette."""
    for path in [*FILES, "python/tfdistr/_version.py", "vignettes/tfdistr.Rmd"]:
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
    assert "git clone https://github.com/jane/tfdistr tfdistr &&" in (checkout / "README.md").read_text()


@pytest.mark.parametrize(
    "wrong",
    [
        ("github.com/jane/tfdistr", "Jane Doe", "jane@doe.org"),
        ("https://github.com", "Jane Doe", "jane@doe.org"),
        ("https://github.com/jane/tfdistr", "", "jane@doe.org"),
        ("https://github.com/jane/tfdistr", "jane@doe.org", "Jane Doe"),
    ],
)
def test_what_is_no_address_or_maintainer_changes_nothing(wrong, checkout):
    refused = PUBLISH["change"](PUBLISH["Origin"](*wrong), checkout)
    what, received, fix = refused.splitlines()
    assert what.startswith("The address must be that of a repository")
    assert received == f"Received: {', '.join(wrong)}"
    assert fix.startswith("Fix: Pass https://github.com/OWNER/tfdistr ")
    assert PUBLISH["origin"](checkout) == ORIGIN


def test_a_release_is_refused_before_anything_is_built():
    script = (ROOT / "tools" / "release.sh").read_text()
    assert script.index("tools/publish.py check") < script.index("uv.sh build")


def test_links_are_absolute_in_the_packages(checkout):
    PUBLISH["main"](["links", str(checkout)])
    before, after = (ROOT / "README.md").read_text(), (checkout / "README.md").read_text()
    base = f"{ORIGIN.address}/blob/v{PUBLISH['version']()}/"
    links = re.findall(r"\]\(([^)\s]+)\)", after)
    assert f"{base}docs/install.md" in links
    assert f"{base}docs/failures.md" in links
    assert all(link.startswith("https://") for link in links)
    assert after.replace(base, "") == before
    vignette = (checkout / "vignettes/tfdistr.Rmd").read_text()
    assert f"]({base}docs/data.md)" in vignette
    assert "](../" not in vignette


def test_the_recipe_of_conda_forge_asks_for_what_pip_asks_for(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    import conda_recipe

    sdist = tmp_path / "tfdistr-0.tar.gz"
    sdist.write_bytes(b"sources")
    made = yaml.safe_load(conda_recipe.recipe(sdist))
    assert made["context"] == {"version": PUBLISH["version"](), "python_min": "3.11"}
    assert made["source"]["sha256"] == hashlib.sha256(b"sources").hexdigest()
    assert made["about"]["homepage"] == ORIGIN.address
    unix, python, *run = made["requirements"]["run"]
    assert [unix, python] == ["__unix", "python >=${{ python_min }},<3.14"]
    assert [line.replace(" ", "") for line in run] == [line.split(";")[0] for line in PROJECT["dependencies"]]


def test_uploads_to_pypi_start_by_hand_and_need_no_secret():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "publish.yml").read_text())
    assert workflow[True] == {"workflow_dispatch": None}  # YAML 1.1 reads the key "on" so
    build, upload = workflow["jobs"]["build"], workflow["jobs"]["upload"]
    assert {"run": "make release"} in build["steps"]
    assert "permissions" not in build
    assert upload["permissions"] == {"id-token": "write"}
    assert all("run" not in step and re.search(r"@[0-9a-f]{40}$", step["uses"]) for step in upload["steps"])


def test_the_site_links_to_the_repository_that_builds_it(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools" / "site")
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    import repository

    assert repository.address(ROOT) == repository.written_address(ROOT) == ORIGIN.address
    monkeypatch.setenv("GITHUB_REPOSITORY", "a/fork")
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://github.com")
    assert repository.address(ROOT) == "https://github.com/a/fork"
