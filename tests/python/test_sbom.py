"""The bill of materials of a release, and what is said of known vulnerabilities. No advisory is asked for."""

import json
import re
import subprocess
import sys
from pathlib import Path

from paths import ROOT

# In the place of pip-audit: its report has what the file named "vulnerable" says.
AUDIT = """
import json, pathlib, sys
here = pathlib.Path(sys.argv[0]).parent
options = dict(zip(sys.argv[1::1], sys.argv[2::1]))
vulnerable = json.loads((here / "vulnerable").read_text())
if vulnerable is None:
    sys.exit("Traceback: no report")
lines = pathlib.Path(options["--requirement"]).read_text().split()
names = [line.partition("==")[::2] for line in lines]
assert len(dict(names)) == len(names)
plain = [{"name": name, "version": version, "vulns": []} for name, version in names]
found = [each | vulnerable.get(each["name"], {}) for each in plain]
pathlib.Path(options["--output"]).write_text(json.dumps({"dependencies": found, "fixes": []}))
sys.exit(any(each.get("vulns") for each in found))
"""
VULNERABLE = {"attrs": {"vulns": [{"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": ["99"]}]}}


def sbom(
    folder: Path, vulnerable: object, accepted: str = "", service: str = "http://127.0.0.1:1"
) -> subprocess.CompletedProcess[str]:
    """Run the script with another pip-audit; the bill is in ``folder``."""
    for name, text in {"audit.py": AUDIT, "vulnerable": json.dumps(vulnerable), "accepted": accepted}.items():
        (folder / name).write_text(text)
    return subprocess.run(
        [sys.executable, "tools/sbom.py", str(folder / "bill.json"), "--accepted", str(folder / "accepted"),
         "--pip-audit", f"{sys.executable} {folder / 'audit.py'}", "--service", service],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip


def test_a_known_vulnerability_is_refused(tmp_path: Path) -> None:
    ended = sbom(tmp_path, VULNERABLE)
    assert ended.returncode == 1
    first, second, *_ = ended.stderr.splitlines()
    assert first == "error: Locked dependencies have known vulnerabilities."
    assert re.fullmatch(r"  attrs [\d.]+: PYSEC-1, CVE-1 \(fixed in 99\)", second)


def test_what_is_accepted_has_reasons() -> None:
    lines = (ROOT / "tools" / "accepted-vulnerabilities.txt").read_text().splitlines()
    for line in lines:
        assert line.startswith("#") or re.fullmatch(r"(PYSEC|GHSA|CVE)-\S+ \S.*", line)


def test_a_privileged_container_has_a_reason() -> None:
    """A comment above it that begins with "privileged:"."""
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        before: list[str] = []
        for line in path.read_text().splitlines():
            if "--privileged" in line and not line.lstrip().startswith("#"):
                assert any(re.match(r"\s*# privileged: \S+", each) for each in before[-6:]), path.name
            before.append(line)
