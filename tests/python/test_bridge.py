"""R enters the core by one door."""

import importlib
import re
import subprocess
import sys

import pytest
from paths import ROOT

from tfdistr import bridge

SOURCES = {path.name: path.read_text() for path in (ROOT / "R").glob("*.R")}
CALL = re.compile(r"\bcore\((?:convert = TRUE)?\)\$`?(\w+)")
#: The functions of R that take the name of what they call there.
BY_NAME = re.compile(r'\b(?:call_core\(|new_cluster\(|new_options\("\w+", )"(\w+)"')


def code(source: str) -> str:
    return "\n".join(line.partition("#")[0] for line in source.splitlines())


def test_r_calls_what_the_bridge_has_and_nothing_else():
    sources = [code(source) for source in SOURCES.values()]
    called = {name for source in sources for form in (CALL, BY_NAME) for name in form.findall(source)}
    assert called - {"__version__", "__file__"} == set(bridge.NAMES)


def test_r_imports_no_other_module_of_the_core():
    for name, source in SOURCES.items():
        text = code(source)
        others = text.count("list(core(convert), name)") + text.count("try(core(),")
        assert len(re.findall(r"\bcore\(", text)) == len(CALL.findall(text)) + others, name
        imported = re.findall(r'import\("(tfdistr[^"]*)"', text)
        assert imported == (["tfdistr.bridge", "tfdistr"] if name == "python.R" else []), name


@pytest.mark.parametrize("name", bridge.NAMES)
def test_a_name_is_what_its_module_has(name):
    module, _, other = bridge.NAMES[name].partition(":")
    assert getattr(bridge, name) is getattr(importlib.import_module(f"tfdistr.{module}"), other or name)
    assert getattr(bridge, name).__doc__
    assert name in dir(bridge)


def test_another_name_is_an_error():
    with pytest.raises(AttributeError, match=r"'tfdistr\.bridge' has no attribute 'nothing'"):
        _ = bridge.nothing


def test_it_is_imported_without_tensorflow():
    program = "import sys; from tfdistr.bridge import tf_config, preload; print('tensorflow' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ended.stdout == "False\n", ended.stderr
