"""Writes the bill of materials of the locked dependencies, and looks for known vulnerabilities in them.

    python3 tools/sbom.py dist/tfdistr-0.3.0.cdx.json

The bill (CycloneDX) has what the package and its extras need, on all systems and with all versions of Python.
pip-audit asks OSV about each of them. A vulnerability is an error, unless tools/accepted-vulnerabilities.txt
has a reason for it. Where OSV cannot be reached, a line says so.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

import publish

ROOT = publish.ROOT
ACCEPTED = ROOT / "tools" / "accepted-vulnerabilities.txt"
OSV = "https://api.osv.dev/v1/query"
PIP_AUDIT = "tools/uv.sh run --quiet --isolated --frozen --only-group release pip-audit"
_EXPORT = ("tools/uv.sh", "export", "--quiet", "--frozen", "--all-extras", "--no-default-groups",
           "--preview-features", "sbom-export", "--format", "cyclonedx1.5")  # fmt: skip
_UV = "0.9.11"  # the first that exports bills of materials
_SECONDS = 20


def bill_of_materials() -> dict[str, Any]:
    """The bill of what uv.lock has, without what is for development only."""
    env = {**os.environ, "UV_AT_LEAST": _UV}
    bill = json.loads(subprocess.run(_EXPORT, cwd=ROOT, env=env, check=True, stdout=subprocess.PIPE).stdout)
    bill["metadata"]["component"]["version"] = publish.version()  # uv does not know it: it is dynamic
    return dict(bill)


def accepted(path: Path) -> list[str]:
    """The names of the vulnerabilities that are accepted. Each has a reason in the file."""
    found = []
    for line in path.read_text().splitlines():
        name, _, reason = line.partition(" ")
        if not line.strip() or name.startswith("#"):
            continue
        if not reason.strip():
            sys.exit(f"error: {path.name} has no reason for {name}.\nFix: Write it after the name.")
        found.append(name)
    return found


def rounds(packages: list[tuple[str, str]]) -> list[dict[str, str]]:
    """The packages, so divided that each is in a part once: pip-audit takes one version of a package."""
    found: list[dict[str, str]] = []
    for name, version in packages:
        into = next((each for each in found if name not in each), None)
        if into is None:
            found.append(into := {})
        into[name] = version
    return found


def audit(packages: dict[str, str], ignored: list[str]) -> bool | None:
    """Whether pip-audit finds nothing; it prints what it finds. None if the service cannot be reached."""
    with tempfile.TemporaryDirectory(prefix="tfdistr-") as folder:
        listed, report = Path(folder, "requirements.txt"), Path(folder, "report.txt")
        listed.write_text("".join(f"{name}=={version}\n" for name, version in packages.items()))
        ended = subprocess.run(
            [*shlex.split(PIP_AUDIT), "--progress-spinner", "off", "--strict", "--disable-pip", "--no-deps",
             "--vulnerability-service", "osv", "--osv-url", OSV, "--output", str(report),
             "--requirement", str(listed), *(word for name in ignored for word in ("--ignore-vuln", name))],
            cwd=ROOT, capture_output=True, text=True,
        )  # fmt: skip
        if report.exists():
            print(report.read_text(), end="")
            return ended.returncode == 0
    if why := unreachable(*next(iter(packages.items()))):
        print(f"Known vulnerabilities: NOT CHECKED, because {OSV} cannot be reached ({why}).")
        return None
    sys.exit(f"error: pip-audit has failed.\n{(ended.stdout + ended.stderr).rstrip()}")


def unreachable(name: str, version: str) -> str | None:
    """Why the service does not answer a question about a package; None if it answers."""
    question = {"package": {"name": name, "ecosystem": "PyPI"}, "version": version}
    try:
        with urllib.request.urlopen(OSV, json.dumps(question).encode(), timeout=_SECONDS):
            return None
    except OSError as error:
        return str(error)


def main(output: Path) -> int:
    """Write the bill, and check what it names."""
    ignored = accepted(ACCEPTED)
    bill = bill_of_materials()
    output.write_text(json.dumps(bill, indent=2) + "\n")
    packages = [(each["name"], each["version"]) for each in bill["components"]]
    print(f"{output}: {len(packages)} packages")
    found: list[bool] = []
    for each in rounds(packages):
        clean = audit(each, ignored)
        if clean is None:
            return 0
        found.append(clean)
    if all(found):
        return 0
    print("error: Locked dependencies have known vulnerabilities, see above.\n"
          "Fix: tools/uv.sh lock --upgrade-package NAME. If tfdistr is not affected, write the name of the "
          f"vulnerability and the reason into {ACCEPTED}.", file=sys.stderr)  # fmt: skip
    return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
