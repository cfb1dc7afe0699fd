"""The report for a bug: versions, the machine, environment variables, and the checks of ``doctor()``."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Mapping

from tfdistr._version import __version__
from tfdistr.diagnosis import doctor
from tfdistr.utils.packages import version_of

# Variables that others read while they are loaded or started.
_READ = re.compile(
    r"(TF_|CUDA_|NVIDIA_|XLA_|KERAS_|RETICULATE_|UV_|OMP_|OPENBLAS_|MPI|OMPI_|PMI|SLURM_|VIRTUAL_ENV|R_LIBS)"
)
_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|KEY")
_PACKAGES = (
    "tensorflow", "keras", "numpy", "tensorflow-datasets", "mpi4py", "mpich", "jsonschema", "pyarrow",
    "pandas", "rpy2", "ray",
)  # fmt: skip


def relevant_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that change what TensorFlow, Python, MPI and the schedulers do; no secrets."""
    names = [name for name in variables if _READ.match(name) and not _SECRET.search(name)]
    return {name: variables[name] for name in sorted(names)}


def report(timeout: float = 20.0) -> str:
    """Return the report as text."""
    checks = doctor(timeout=timeout)
    versions = {"tfdistr": __version__, "Python": f"{platform.python_version()}, {sys.executable}"}
    versions |= {name: version_of(name) or "none" for name in _PACKAGES}
    machine = {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": str(os.cpu_count()),
    }
    sections = {
        "Versions": _columns(versions),
        "Machine": _columns(machine),
        "Environment": _columns(relevant_variables(os.environ)) or "none",
        "Checks": str(checks),
    }
    return "\n\n".join(f"{title}\n{'-' * len(title)}\n{text}" for title, text in sections.items())


def _columns(values: Mapping[str, str]) -> str:
    width = max(map(len, values), default=0)
    return "\n".join(f"{name:{width}}  {value}" for name, value in values.items())
