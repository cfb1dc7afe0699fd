"""What is handed out: the R package carries the very Python core that the Python package has."""

import email
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from paths import ROOT

import tfdistr

CORE = ROOT / "python" / "tfdistr"


def run(*command: str | Path, cwd: Path) -> None:
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stdout + result.stderr


def core_files() -> dict[str, bytes]:
    """The sources and data of the Python core, by path below python/."""
    paths = (path for path in CORE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(CORE.parent).as_posix(): path.read_bytes() for path in paths}


@pytest.fixture(scope="module")
def tarball(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The R package, made of a checkout whose links in inst/ are plain files, as git may leave them."""
    folder, checkout = tmp_path_factory.mktemp("tarball"), tmp_path_factory.mktemp("checkout")
    run("sh", "-c", f"tar -cf - --exclude='./.[a-z]*' . | tar -xf - -C {checkout}", cwd=ROOT)
    for link in [path for path in (checkout / "inst").iterdir() if path.is_symlink()]:
        target = str(link.readlink())
        link.unlink()
        link.write_text(target)
    run(checkout / "tools" / "build-r.sh", folder, cwd=folder)
    (path,) = folder.glob("tfdistr_*.tar.gz")
    return path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # Built from a copy: setuptools leaves a build folder behind, and resumes old files from it.
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(CORE, folder / "python" / "tfdistr", ignore=shutil.ignore_patterns("__pycache__"))
    run(sys.executable, ROOT / "tools" / "publish.py", "links", folder, cwd=folder)
    run(ROOT / "tools" / "uv.sh", "build", "--wheel", "--out-dir", folder, folder, cwd=folder)
    (path,) = folder.glob("tfdistr-*.whl")
    return path


def test_r_tarball_carries_the_core_byte_for_byte(tarball: Path) -> None:
    prefix = "tfdistr/inst/python/"
    with tarfile.open(tarball) as archive:
        members = {member.name: member for member in archive.getmembers()}
        assert not [name for name, member in members.items() if member.issym() or member.islnk()]
        carried = {
            name.removeprefix(prefix): archive.extractfile(member).read()  # type: ignore[union-attr]
            for name, member in members.items()
            if name.startswith(prefix) and member.isfile()
        }
        pyproject = archive.extractfile("tfdistr/inst/pyproject.toml")
        assert pyproject is not None
        assert pyproject.read() == (ROOT / "pyproject.toml").read_bytes()
    assert carried == core_files()


def test_r_tarball_has_nothing_else(tarball: Path) -> None:
    with tarfile.open(tarball) as archive:
        names = [name.removeprefix("tfdistr/") for name in archive.getnames() if name != "tfdistr"]
    expected = "DESCRIPTION NAMESPACE NEWS.md R README.md build inst man tests vignettes .Rinstignore"
    assert {name.split("/")[0] for name in names} <= set(expected.split())
    assert {name.split("/")[1] for name in names if name.startswith("tests/")} <= {"testthat", "testthat.R"}


def test_r_tarball_has_all_vignettes_and_a_citation(tarball: Path) -> None:
    with tarfile.open(tarball) as archive:
        names = set(archive.getnames())
    vignettes = [path.stem for path in (ROOT / "vignettes").glob("*.Rmd")]
    assert vignettes
    assert {f"tfdistr/inst/doc/{name}.html" for name in vignettes} <= names
    assert "tfdistr/inst/CITATION" in names


def test_wheel_has_the_core_byte_for_byte(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}
    assert packed == core_files()


def test_metadata_of_the_wheel_have_absolute_links(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(archive.read(name))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert metadata["Version"] == tfdistr.__version__
    assert metadata["Author-email"] == "{name} <{email}>".format(**project["authors"][0])
    assert metadata.get_all("Project-URL") == [f"{name}, {url}" for name, url in project["urls"].items()]
    links = re.findall(r"\]\(([^)\s]+)\)", metadata.get_payload())
    assert len(links) > 10
    assert [link for link in links if not link.startswith("https://")] == []
