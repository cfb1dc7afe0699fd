"""The bill of materials of a release, and what is said of known vulnerabilities. No advisory is asked for."""

import subprocess
import sys
from pathlib import Path

from paths import ROOT

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


def sbom(
    folder: Path, vulnerable: str, accepted: str = "", service: str = "http://127.0.0.1:1"
) -> subprocess.CompletedProcess[str]:
    """Run the script with another pip-audit; the bill is in ``folder``."""
    for name, text in {"audit.py": AUDIT, "vulnerable": vulnerable, "accepted": accepted}.items():
        (folder / name).write_text(text)
    return subprocess.run(
        [sys.executable, "tools/sbom.py", str(folder / "bill.json"), "--accepted", str(folder / "accepted"),
         "--pip-audit", f"{sys.executable} {folder / 'audit.py'}", "--service", service],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip


def test_a_known_vulnerability_is_refused(tmp_path: Path) -> None:
    ended = sbom(tmp_path, "PYSEC-1")
    assert ended.returncode == 1
    assert "attrs PYSEC-1" in ended.stdout
    assert ended.stderr.startswith("error: Locked dependencies have known vulnerabilities")


def test_an_accepted_vulnerability_needs_a_reason(tmp_path: Path) -> None:
    assert sbom(tmp_path, "PYSEC-1", "PYSEC-1 attrs is not used").returncode == 0
    assert "accepted has no reason for PYSEC-1" in sbom(tmp_path, "PYSEC-1", "PYSEC-1").stderr


def test_a_database_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    ended = sbom(tmp_path, "")
    assert ended.returncode == 0
    assert "NOT CHECKED, because http://127.0.0.1:1 cannot be reached" in ended.stdout
