"""The bill of materials of a release, and what is said of known vulnerabilities. No advisory is asked for."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from paths import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import sbom

# In the place of pip-audit: it finds the vulnerability that the file "vulnerable" names in attrs.
AUDIT = """
import pathlib, sys
here = pathlib.Path(sys.argv[0]).parent
options = dict(zip(sys.argv[1::1], sys.argv[2::1]))
name = (here / "vulnerable").read_text()
if not name:
    sys.exit("Traceback: no report")
lines = [line.partition("==")[0] for line in pathlib.Path(options["--requirement"]).read_text().split()]
assert len(set(lines)) == len(lines)
found = "attrs" in lines and options.get("--ignore-vuln") != name
pathlib.Path(options["--output"]).write_text(f"attrs {name}\\n" if found else "")
sys.exit(found)
"""


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Write the bill, with another pip-audit and no service."""
    monkeypatch.setattr(sbom, "ACCEPTED", tmp_path / "accepted")
    monkeypatch.setattr(sbom, "PIP_AUDIT", f"{sys.executable} {tmp_path / 'audit.py'}")
    monkeypatch.setattr(sbom, "OSV", "http://127.0.0.1:1")

    def check(vulnerable: str, accepted: str = "") -> int:
        for name, text in {"audit.py": AUDIT, "vulnerable": vulnerable, "accepted": accepted}.items():
            (tmp_path / name).write_text(text)
        return sbom.main(tmp_path / "bill.json")

    return check


def test_a_known_vulnerability_is_refused(check: Callable[..., int], capsys) -> None:
    assert check("PYSEC-1") == 1
    said = capsys.readouterr()
    assert "attrs PYSEC-1" in said.out
    assert said.err.startswith("error: Locked dependencies have known vulnerabilities")


def test_an_accepted_vulnerability_needs_a_reason(check: Callable[..., int]) -> None:
    assert check("PYSEC-1", "PYSEC-1 attrs is not used") == 0
    with pytest.raises(SystemExit, match="accepted has no reason for PYSEC-1"):
        check("PYSEC-1", "PYSEC-1")


def test_a_database_that_cannot_be_reached_is_named(check: Callable[..., int], capsys) -> None:
    assert check("") == 0
    assert "NOT CHECKED, because http://127.0.0.1:1 cannot be reached" in capsys.readouterr().out
