"""Trains with the versions of Python, TensorFlow and Keras that users have, and prints a table.

Usage: versions.py [--only PART] [--record]
       versions.py --nightly

Each row of the table has an environment of its own in .cache/versions, about 2 GB, which is made once. A row
whose Python is not on this machine is skipped, and the table says so. With --record the results go into
tests/versions/results.json, from which docs/install.md has its table. --nightly checks the nightly builds of
TensorFlow and Keras, which tfdistr does not support yet. The exit status is 1 if a check fails.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tests" / "versions"
RESULTS = FOLDER / "results.json"
UV = str(ROOT / "tools" / "uv.sh")
#: Cases of tests/equality, each by the strategy under Keras's fit() and by distributed_fit().
CASES = (
    "masked_tokens", "last_batch_smaller_than_workers", "custom_train_step", "global_clipnorm",
    "wasserstein_gan", "simclr", "without_call", "nested_logs",
)  # fmt: skip
OK, FAILED, SKIPPED = "ok", "FAILED", "skipped"


class Versions(NamedTuple):
    """A row: what its environment has."""

    python: str
    tensorflow: str
    keras: str

    @property
    def folder(self) -> Path:
        """The folder of the environment."""
        name = f"python{self.python}-tensorflow{self.tensorflow}-keras{self.keras}"
        return ROOT / ".cache" / "versions" / name


#: The oldest and the newest pair, the oldest TensorFlow with the newest Keras, and others.
ROWS = (
    Versions("3.11", "2.18.1", "3.8.0"),
    Versions("3.11", "2.18.1", "3.15.1"),
    Versions("3.12", "2.19.1", "3.10.0"),
    Versions("3.13", "2.20.0", "3.12.4"),
    Versions("3.13", "2.21.0", "3.15.1"),
)
NIGHTLY = Versions("3.11", "nightly", "nightly")


def main() -> int:
    """Check all rows, or the chosen ones."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="a part of the name of an environment")
    parser.add_argument("--record", action="store_true", help="write tests/versions/results.json")
    parser.add_argument(
        "--nightly", action="store_true", help="check the nightly builds of TensorFlow and Keras"
    )
    options = parser.parse_args()
    rows = [NIGHTLY] if options.nightly else [row for row in ROWS if options.only in row.folder.name]
    if not rows:
        parser.error(f"no environment has this in its name: {options.only}")
    results = []
    for row in rows:
        results.append(checked(row))
        if options.record:
            known = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
            RESULTS.write_text(json.dumps(merged(known, results), indent=2) + "\n")
    print(table(results))
    return int(any(FAILED in result["checks"].values() for result in results))


def merged(known: Sequence[dict], new: Sequence[dict]) -> list[dict]:
    """The results of all rows, in the order of ``ROWS``; new ones take the place of known ones."""
    found = {Versions(*(result[name] for name in Versions._fields)): result for result in [*known, *new]}
    return [found[row] for row in ROWS if row in found]


def checked(row: Versions) -> dict:
    """The results of all checks of a row."""
    result = {**row._asdict(), "checks": dict.fromkeys(CHECKS, SKIPPED)}
    if environment(row):
        for name in CHECKS:
            result["checks"][name] = check(row, name)
    return result


def environment(row: Versions) -> bool:
    """Make the environment of a row, if it is not there; return whether it is there."""
    if (row.folder / "complete").exists() and row != NIGHTLY:
        return True
    base = find_python(row.python)
    if base is None:
        print(f"==> {row.folder.name}: no Python {row.python} on this machine", flush=True)
        return False
    print(f"==> {row.folder.name}, with {base}", flush=True)
    shutil.rmtree(row.folder, ignore_errors=True)
    packages = [f"tensorflow=={row.tensorflow}", f"keras=={row.keras}", "-e", str(ROOT)]
    if row == NIGHTLY:
        packages[:2] = ["tf-nightly", "keras-nightly", "--overrides", str(FOLDER / "nightly.txt")]
    elif row.tensorflow < "2.20":
        packages.append("tensorflow-metadata<1.21")  # docs/install.md says why
    subprocess.run([UV, "venv", "--quiet", "--python", base, row.folder], check=True)
    install = [UV, "pip", "install", "--quiet", "--python", row.folder / "bin" / "python"]
    subprocess.run([*install, *packages, "pytest"], check=True)
    if row == NIGHTLY:
        allow_newer(row)
    (row.folder / "complete").touch()
    return True


def allow_newer(row: Versions) -> None:
    """Let each process of this environment take newer versions than tfdistr supports."""
    (site_packages,) = row.folder.glob("lib/python*/site-packages")
    newer = ", ".join(f"{name}=('0.0', '99.0')" for name in ("TensorFlow", "Keras"))
    line = f"import tfdistr.supported; tfdistr.supported.SUPPORTED.update({newer})\n"
    (site_packages / "zz_allow_newer.pth").write_text(line)  # after the file that makes tfdistr known


def find_python(version: str) -> str | None:
    """A Python of this version with a shared library, which R needs: pyenv's, or one on the PATH."""
    folders = sorted(
        Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions").glob(f"{version}.*")
    )
    places = [*(str(folder / "bin" / "python3") for folder in reversed(folders)), f"python{version}"]
    shared = "import sysconfig, sys; sys.exit(not sysconfig.get_config_var('Py_ENABLE_SHARED'))"
    for place in filter(None, map(shutil.which, places)):
        if subprocess.run([place, "-c", shared], stderr=subprocess.DEVNULL).returncode == 0:
            return place
    return None


EQUALITY = [
    "python", str(ROOT / "tests/equality/run.py"), "--workers", "2", "--cases", *CASES, "--communication",
]  # fmt: skip
#: The command of each check; "python" is the environment's.
CHECKS = {
    "equality, MPI": [*EQUALITY, "mpi"],
    "equality, ring": [*EQUALITY, "ring"],
    "resume, MPI": ["python", str(FOLDER / "killed.py"), "mpi"],
    "resume, ring": ["python", str(FOLDER / "killed.py"), "ring"],
    "arguments": ["python", str(FOLDER / "drop_in.py")],
    "R": ["Rscript", str(FOLDER / "smoke.R")],
}


def check(row: Versions, name: str) -> str:
    """Run a check in the environment of a row. What a failed check printed is in a file of its folder."""
    python = str(row.folder / "bin" / "python")
    command = [python if word == "python" else word for word in CHECKS[name]]
    if shutil.which(command[0]) is None:
        return SKIPPED
    # Keras need not import pandas and matplotlib. R chooses Python by RETICULATE_PYTHON.
    env = {**os.environ, "PYTHONPATH": str(ROOT / "tests" / "without"), "RETICULATE_PYTHON": python}
    env["TF_CPP_MIN_LOG_LEVEL"] = "3"
    began = time.monotonic()
    ended = subprocess.run(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=1800
    )
    status = FAILED if ended.returncode else OK
    print(f"{row.folder.name}: {name}: {status}, {time.monotonic() - began:.0f} s", flush=True)
    log = row.folder / f"{name.replace(', ', '-')}.log"
    log.write_text(ended.stdout)
    if status == FAILED:
        print(f"{ended.stdout[-2000:]}\n{log}", flush=True)
    return status


def table(results: Sequence[dict]) -> str:
    """The results in Markdown."""
    head = ["Python", "TensorFlow", "Keras", *CHECKS]
    rows = [[*(result[name] for name in Versions._fields), *result["checks"].values()] for result in results]
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
