"""Prints the recipe of conda-forge for an sdist; the rest of it is from pyproject.toml.

python3 tools/conda_recipe.py dist/tfdistr-0.3.0.tar.gz
"""

from __future__ import annotations

import hashlib
import re
import sys
import tomllib
from pathlib import Path

from publish import ROOT, origin, version

#: One package for all systems but Windows. pip does not see conda's mpich, so that `pip check` would fail.
RECIPE = """\
schema_version: 1

context:
  version: "{version}"
  python_min: "{python_min}"

package:
  name: tfdistr
  version: ${{{{ version }}}}

source:
  url: https://pypi.org/packages/source/t/tfdistr/tfdistr-${{{{ version }}}}.tar.gz
  sha256: {sha256}

build:
  number: 0
  noarch: python
  script: ${{{{ PYTHON }}}} -m pip install . -vv --no-deps --no-build-isolation
  python:
    entry_points:
      - tfdistr = {entry_point}

requirements:
  host:
    - python ${{{{ python_min }}}}.*
    - pip
{host}
  run:
    - __unix
    - python >=${{{{ python_min }}}},{python_end}
{run}

tests:
  - python:
      imports: [tfdistr]
      pip_check: false
      python_version: ${{{{ python_min }}}}.*
  - script:
      - tfdistr --version

about:
  homepage: {address}
  repository: {address}
  summary: "{summary}"
  license: {license}
  license_file: LICENSE

extra:
  recipe-maintainers:
    - {owner}
"""


def spec(requirement: str) -> str:
    """Return a requirement of pip as conda writes it, without its marker: the recipe is not for Windows."""
    name, versions = re.fullmatch(r"([\w-]+)([^;]*?)\s*(;.*)?", requirement).group(1, 2)  # type: ignore[union-attr]
    return f"{name} {versions}".strip()


def recipe(sdist: Path, root: Path = ROOT) -> str:
    """Return the recipe."""
    whole = tomllib.loads((root / "pyproject.toml").read_text())
    project, address = whole["project"], origin(root).address

    def items(requirements: list[str]) -> str:
        return "\n".join(f"    - {spec(requirement)}" for requirement in requirements)

    python_min, python_end = project["requires-python"].removeprefix(">=").split(",")
    return RECIPE.format(
        version=version(root),
        sha256=hashlib.sha256(sdist.read_bytes()).hexdigest(),
        python_min=python_min,
        python_end=python_end,
        entry_point=project["scripts"]["tfdistr"],
        host=items(whole["build-system"]["requires"]),
        run=items(project["dependencies"]),
        address=address,
        owner=address.split("/")[-2],
        summary=project["description"],
        license=project["license"],
    )


if __name__ == "__main__":
    print(recipe(Path(sys.argv[1])), end="")
