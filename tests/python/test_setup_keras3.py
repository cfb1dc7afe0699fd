"""`tools/setup-keras3.sh`: from CRAN, else from a folder, else one line."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from paths import ROOT

pytestmark = [
    pytest.mark.skipif(not shutil.which("Rscript"), reason="no R"),
    pytest.mark.timeout(120),
]


def package(folder: Path, name: str, version: str, imports: str = "") -> None:
    """Write a source package without code into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    fields = {
        "Package": name, "Version": version, "Title": "A Package", "Description": "A package.",
        "License": "MIT", "Author": "A", "Maintainer": "A <a@example.org>", "Imports": imports,
    }  # fmt: skip
    texts = {
        "DESCRIPTION": "".join(f"{key}: {value}\n" for key, value in fields.items() if value),
        "NAMESPACE": "",
    }
    with tarfile.open(folder / f"{name}_{version}.tar.gz", "w:gz") as archive:
        for file, text in texts.items():
            entry = tarfile.TarInfo(f"{name}/{file}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))


class Setup:
    """A checkout with nothing but tools/, and an R without packages, which reaches no CRAN."""

    def __init__(self, folder: Path) -> None:
        folders = (folder / name for name in ("checkout", "library", "packages"))
        self.root, self.library, self.packages = folders
        shutil.copytree(ROOT / "tools", self.root / "tools", ignore=shutil.ignore_patterns("__pycache__"))
        self.library.mkdir()
        programs = folder / "programs"
        programs.mkdir()
        # R is not apt's, so nothing is installed from apt.
        (programs / "dpkg-query").write_text("#!/bin/sh\nexit 1\n")
        (programs / "dpkg-query").chmod(0o755)
        self.profile = folder / "Rprofile"
        self.use_cran(folder / "no-cran")
        self.env = os.environ | {
            "R_PROFILE": str(self.profile), "KERAS3_PACKAGES": str(self.packages),
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        }  # fmt: skip

    def use_cran(self, folder: Path) -> None:
        """Make a folder the CRAN mirror of this R, which has its own packages and those of the library."""
        self.profile.write_text(
            f'options(repos = c(CRAN = "file://{folder}"))\n'
            f'.libPaths("{self.library}", include.site = FALSE)\n'
        )

    def run(self) -> list[str]:
        ended = subprocess.run(
            [self.root / "tools" / "setup-keras3.sh"], env=self.env, capture_output=True, text=True
        )
        assert (ended.returncode, ended.stderr) == (0, "")
        return ended.stdout.splitlines()

    def installed(self) -> list[str]:
        return sorted(path.name for path in self.library.iterdir())


@pytest.fixture
def setup(tmp_path) -> Setup:
    return Setup(tmp_path)


def test_from_cran_before_the_folder_and_only_once(setup, tmp_path):
    cran = tmp_path / "cran"
    for name in ("keras3", "tfdatasets"):
        package(cran / "src" / "contrib", name, "2.0")
        package(setup.packages, name, "1.0")
    program = "tools::write_PACKAGES(commandArgs(TRUE), type = 'source')"
    subprocess.run(["Rscript", "--vanilla", "-e", program, cran / "src" / "contrib"], check=True)
    setup.use_cran(cran)
    assert setup.run() == [f"==> R packages keras3 and tfdatasets from file://{cran}"]
    assert "Version: 2.0" in (setup.library / "keras3" / "DESCRIPTION").read_text()
    assert setup.run() == []


def test_one_line_where_neither_is_there_and_a_new_try_when_the_folder_changes(setup):
    missing = (
        "==> keras3 is not installed (CRAN cannot be reached,"
        f" and {setup.packages} has no source package of it). tfdistr works without it."
    )
    assert setup.run() == [missing]
    assert setup.run() == []
    package(setup.packages, "keras3", "1.0", "nowhere")
    said = setup.run()
    assert len(said) == 2
    assert said[1] == "==> keras3 is not installed (see .cache/keras3.log). tfdistr works without it."
    assert "nowhere" in (setup.root / ".cache" / "keras3.log").read_text()
    assert setup.installed() == []
