"""The supported versions: one list of them, and one message outside of them."""

import json
import re
import runpy
import subprocess
import sys
import tomllib
import types
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from paths import ROOT

import tfdistr
from tfdistr import supported

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def message(works: str, received: str, fix: str) -> str:
    return f"tfdistr works with {works}.\nReceived: {received}, in {sys.executable}\nFix: {fix}"


DRIVER = runpy.run_path(str(ROOT / "tools" / "versions.py"))
RESULTS = json.loads(DRIVER["RESULTS"].read_text())
PIP = 'pip install "tensorflow>=2.18,<2.22" "keras>=3.8,<3.16"; from R: install_tfdistr(), and restart R.'


def test_pip_and_r_get_the_same_ranges():
    wanted = {supported.requirement(name) for name in ("TensorFlow", "Keras")}
    assert wanted <= set(PROJECT["dependencies"])
    first, end = supported.SUPPORTED["Python"]
    assert PROJECT["requires-python"] == f">={first},<{end}"
    assert (ROOT / "inst" / "uv-constraints.txt").read_text() == "tensorflow-cpu>=2.18,<2.22\n"
    with_cuda = supported.requirement("TensorFlow").replace("tensorflow", "tensorflow[and-cuda]")
    assert PROJECT["optional-dependencies"]["gpu"] == [with_cuda]


def test_the_documents_name_the_ranges():
    for path in ("README.md", "docs/install.md"):
        text = (ROOT / path).read_text()
        assert [name for name in supported.SUPPORTED if f"{name} {supported.spoken(name)}" not in text] == []
    minors = range(int(supported.SUPPORTED["Python"][0][2:]), int(supported.SUPPORTED["Python"][1][2:]))
    named = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if " :: 3." in line]
    assert named == [f"3.{minor}" for minor in minors]


@pytest.mark.parametrize(
    ("name", "version", "fine"),
    [
        ("TensorFlow", "2.17.1", False), ("TensorFlow", "2.18.0", True),
        ("TensorFlow", "2.21.0+nv26.1", True),
        ("TensorFlow", "2.22.0rc0", False), ("TensorFlow", "unknown", False), ("Keras", "2.15.0", False),
        ("Keras", "3.8.0", True), ("Keras", "3.15.9", True), ("Keras", "3.16.0", False),
        ("Python", "3.10.13", False), ("Python", "3.11.0", True), ("Python", "3.14.0", False),
    ],
)  # fmt: skip
def test_the_range_has_its_first_version_and_not_its_end(name, version, fine):
    assert supported.is_supported(name, version) == fine


def install(folder: Path, name: str, version: str) -> None:
    """A package with this version in the folder, for Python and for pip."""
    (folder / f"{name}.py").write_text(f"__version__ = '{version}'\n")
    (folder / f"{name}-{version}.dist-info").mkdir()
    (folder / f"{name}-{version}.dist-info" / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")


def test_a_job_is_refused_before_tensorflow_is_imported(tmp_path, monkeypatch):
    install(tmp_path, "tensorflow", "2.17.1")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(tfdistr.VersionError) as refused:
        tfdistr.distributed_fit(lambda: None, None, cluster=tfdistr.local_cluster(2))
    assert str(refused.value) == message("TensorFlow 2.18 to 2.21", "TensorFlow 2.17.1", PIP)


def last_error(code: str) -> str:
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    return ended.stderr.rpartition("VersionError: ")[2].strip()


def test_private_names_are_not_touched_in_another_version(tmp_path):
    install(tmp_path, "tensorflow", "2.22.0")
    install(tmp_path, "keras", "2.15.0")
    said = last_error(
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import tfdistr; tfdistr.MirroredStrategy"
    )
    assert said == message(
        "TensorFlow 2.18 to 2.21 and Keras 3.8 to 3.15", "TensorFlow 2.22.0, Keras 2.15.0", PIP
    )


def test_another_python_is_refused_at_the_import():
    said = last_error("import sys; sys.version_info = (3, 10, 13); import tfdistr")
    fix = "Use Python 3.11 to 3.13; from R: install_tfdistr() makes an environment with one."
    assert said == message("Python 3.11 to 3.13", "Python 3.10.13", fix)


def test_tensorflow_datasets_that_could_not_load_itself(tmp_path, monkeypatch):
    install(tmp_path, "tensorflow_metadata", "1.21.0")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", types.ModuleType("tensorflow_datasets"))
    with pytest.raises(tfdistr.VersionError, match="needs a tensorflow-metadata that works") as refused:
        tfdistr.load_dataset("mnist")
    assert refused.value.received.startswith("tensorflow-metadata 1.21.0, protobuf ")
    assert refused.value.fix == "pip install 'tensorflow-metadata<1.21'"


def test_what_the_documents_show_was_run():
    assert DRIVER["table"](RESULTS) in (ROOT / "docs" / "install.md").read_text()
    shown = [tuple(result[name] for name in ("python", "tensorflow", "keras")) for result in RESULTS]
    assert shown == list(DRIVER["ROWS"])
    assert {status for result in RESULTS for status in result["checks"].values()} == {"ok"}
    assert {tuple(result["checks"]) for result in RESULTS} == {tuple(DRIVER["CHECKS"])}


def locked() -> dict[tuple[str, str], list[str]]:
    """The wheels of each locked package, by name and version."""
    packages = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    return {
        (package["name"], package.get("version")): [wheel["url"] for wheel in package.get("wheels", [])]
        for package in packages
    }


def of_system(system: dict[str, str], wheel: str) -> tuple[set[str], set[str]]:
    """Of the packages that tfdistr needs: those without a wheel for a system, and those left out on it."""
    options = "--frozen --quiet --no-dev --no-emit-project --no-hashes --no-annotate --no-header"
    export = f"{ROOT}/tools/uv.sh export {options}"
    lines = subprocess.run(export, shell=True, capture_output=True, text=True, check=True).stdout.splitlines()
    pattern, wheels = re.compile(f"(none-any|(cp3|py3).*{wheel})[.]whl$"), locked()
    needed = [Requirement(line) for line in lines]
    left_out = {one.name for one in needed if one.marker and not one.marker.evaluate(system)}
    missing = {
        one.name
        for one in needed
        if one.name not in left_out
        and not any(map(pattern.search, wheels[one.name, str(one.specifier).removeprefix("==")]))
    }
    return missing, left_out


@pytest.mark.parametrize(
    ("platform", "machine", "wheel", "missing", "left_out"),
    [
        ("linux", "aarch64", "manylinux.*aarch64", set(), set()),
        ("darwin", "arm64", "macosx.*(arm64|universal2)", set(), {"array-record"}),
        ("darwin", "x86_64", "macosx.*(x86_64|universal2)", {"tensorflow"}, {"array-record"}),
        ("win32", "AMD64", "win_amd64", set(), {"array-record", "mpi4py", "mpich"}),
    ],
)
def test_the_install_page_says_which_systems_have_wheels(platform, machine, wheel, missing, left_out):
    system = {"sys_platform": platform, "platform_machine": machine, "python_full_version": "3.13.0"}
    found, without = of_system(system | {"python_version": "3.13"}, wheel)
    assert found - {"promise"} == missing  # promise is an sdist of Python files
    assert without & {"array-record", "mpi4py", "mpich"} == left_out


def test_nightly_builds_are_checked_once_a_week_without_the_bounds():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "versions.yml").read_text())
    assert workflow[True]["schedule"]  # YAML 1.1 reads the key "on" so
    assert {"run": "make versions NIGHTLY=1"} in workflow["jobs"]["nightly"]["steps"]
    lifted = (ROOT / "tests" / "versions" / "nightly.txt").read_text().splitlines()[1:]
    assert [Requirement(line).name for line in lifted] == ["tensorflow", "keras"]
    assert not any(Requirement(line).marker.evaluate() for line in lifted)
    assert DRIVER["NIGHTLY"] not in DRIVER["ROWS"]


@pytest.mark.parametrize("name", supported.SUPPORTED)
def test_the_range_is_as_wide_as_what_was_tried(name):
    first, end = (tuple(map(int, version.split("."))) for version in supported.SUPPORTED[name])
    tried = {tuple(map(int, result[name.lower()].split(".")[:2])) for result in RESULTS}
    assert min(tried) == first
    assert max(tried) == (end[0], end[1] - 1)
