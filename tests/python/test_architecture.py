"""docs/architecture.md names what is there."""

import re
import tomllib

from paths import ROOT

TEXT = (ROOT / "docs" / "architecture.md").read_text()
CORE = ROOT / "python" / "tfdistr"
PATH = re.compile(r"`([\w./-]+(?:/|\.py|\.R|\.toml))`")


def test_every_path_is_there():
    paths = set(PATH.findall(TEXT))
    assert len(paths) > 40
    missing = {path for path in paths if not (ROOT / path).exists() and not (CORE / path).exists()}
    assert not missing


def test_every_folder_is_a_layer():
    folders = {path.parent.name for path in CORE.glob("*/__init__.py")}
    assert folders == {folder for folder in folders if f"`{folder}/`" in TEXT}
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    layers = {name for layer in contract["layers"] for name in layer.split(" | ")}
    assert folders <= layers


def test_the_classes_and_functions_are_where_it_says():
    for name, path in re.findall(r"`(\w+)(?:\(\))?` \(`([\w./]+\.py)`\)", TEXT):
        assert re.search(rf"^(class|def) {name}\b", (CORE / path).read_text(), re.MULTILINE), (name, path)
