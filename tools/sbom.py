"""Writes the bill of materials of the locked dependencies, and looks for known vulnerabilities in them.

    python3 tools/sbom.py dist/tfdistr-0.3.0.cdx.json

The bill (CycloneDX) has what the package and its extras need, on all systems and with all versions of Python.
pip-audit asks OSV about each of them. A vulnerability is an error, unless tools/accepted-vulnerabilities.txt
has a reason for it. Where OSV cannot be reached, a line says so.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
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
    version = re.search(r'__version__ = "(.+)"', (ROOT / "python/tfdistr/_version.py").read_text())
    assert version is not None
    bill["metadata"]["component"]["version"] = version[1]  # uv does not know it: it is dynamic
    return dict(bill)


def accepted(path: Path) -> dict[str, str]:
    """The reasons for which vulnerabilities are accepted, by their names."""
    found = {}
    for line in path.read_text().splitlines():
        name, _, reason = line.partition(" ")
        if not line.strip() or name.startswith("#"):
            continue
        if not reason.strip():
            sys.exit(f"error: {path.name} has no reason for {name}.\nFix: Write it after the name.")
        found[name] = reason.strip()
    return found


def report(command: str, service: str, packages: list[tuple[str, str]]) -> list[dict[str, Any]] | None:
    """What pip-audit says of each package; None if the service cannot be reached."""
    # A package may have one version for each version of Python. pip-audit takes one of them at a time.
    rounds: list[dict[str, str]] = []
    for name, version in packages:
        into = next((each for each in rounds if name not in each), None)
        if into is None:
            rounds.append(into := {})
        into[name] = version
    found = []
    for each in rounds:
        said = _of_round(command, service, each)
        if isinstance(said, str):
            why = unreachable(service, *packages[0])
            if why is None:
                sys.exit(f"error: pip-audit has failed.\n{said.rstrip()}")
            print(f"Known vulnerabilities: NOT CHECKED, because {service} cannot be reached ({why}).")
            return None
        found += said
    return found


def _of_round(command: str, service: str, packages: dict[str, str]) -> list[dict[str, Any]] | str:
    """What pip-audit reports of packages with one version each, or what it prints if there is no report."""
    with tempfile.TemporaryDirectory(prefix="tfdistr-") as folder:
        listed, output = Path(folder, "requirements.txt"), Path(folder, "report.json")
        listed.write_text("".join(f"{name}=={version}\n" for name, version in packages.items()))
        ended = subprocess.run(
            [*shlex.split(command), "--progress-spinner", "off", "--disable-pip", "--no-deps",
             "--vulnerability-service", "osv", "--osv-url", service, "--format", "json",
             "--output", str(output), "--requirement", str(listed)],
            cwd=ROOT, capture_output=True, text=True,
        )  # fmt: skip
        if output.exists():
            return list(json.loads(output.read_text())["dependencies"])
        return ended.stdout + ended.stderr


def unreachable(service: str, name: str, version: str) -> str | None:
    """Why the service does not answer a question about a package; None if it answers."""
    question = {"package": {"name": name, "ecosystem": "PyPI"}, "version": version}
    try:
        with urllib.request.urlopen(service, json.dumps(question).encode(), timeout=_SECONDS):
            return None
    except OSError as error:
        return str(error)


def judge(found: list[dict[str, Any]], reasons: dict[str, str], where: str) -> int:
    """Print what was found, and return the exit status."""
    unknown = [each for each in found if "skip_reason" in each]
    refused, used = [], set()
    for package in found:
        for each in package.get("vulns", []):
            names = [each["id"], *each.get("aliases", [])]
            what = f"{package['name']} {package['version']}: {', '.join(names)}"
            if name := next((name for name in names if name in reasons), None):
                used.add(name)
                print(f"Accepted: {what}: {reasons[name]}")
            else:
                fixed = " or ".join(each.get("fix_versions", [])) or "no version yet"
                refused.append(f"{what} (fixed in {fixed})")
    for name in reasons.keys() - used:
        print(f"No locked package has {name} any more: remove it from {where}.")
    for package in unknown:
        print(f"error: {package['name']} was not checked: {package['skip_reason']}", file=sys.stderr)
    if refused:
        print("error: Locked dependencies have known vulnerabilities.", file=sys.stderr)
        print("".join(f"  {line}\n" for line in refused), end="", file=sys.stderr)
        print("Fix: tools/uv.sh lock --upgrade-package NAME. If tfdistr is not affected, write the name of "
              f"the vulnerability and the reason into {where}.", file=sys.stderr)  # fmt: skip
    if refused or unknown:
        return 1
    others = " others" if used else ""
    print(f"Known vulnerabilities: none{others} in {len(found)} locked packages.")
    return 0


def main() -> int:
    """Write the bill, and check what it names."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("output", type=Path, help="the file to write")
    parser.add_argument("--accepted", type=Path, default=ACCEPTED, help="the file with what is accepted")
    parser.add_argument("--pip-audit", default=PIP_AUDIT, help="the command of pip-audit")
    parser.add_argument("--service", default=OSV, help="the address of OSV")
    given = parser.parse_args()
    reasons = accepted(given.accepted)
    bill = bill_of_materials()
    given.output.write_text(json.dumps(bill, indent=2) + "\n")
    packages = [(each["name"], each["version"]) for each in bill["components"]]
    print(f"{given.output}: {len(packages)} packages")
    found = report(given.pip_audit, given.service, packages)
    where = given.accepted
    where = where.relative_to(ROOT) if where.is_relative_to(ROOT) else where
    return 0 if found is None else judge(found, reasons, str(where))


if __name__ == "__main__":
    sys.exit(main())
