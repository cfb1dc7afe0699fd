"""The packages of this Python: their versions, and those that only some functions need."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
from typing import Any

from tfdistr.errors import ArgumentError, VersionError
from tfdistr.supported import SUPPORTED, check

#: The distributions of the packages that matter. A package may come from any of its distributions.
PACKAGES = {"tensorflow": ("tensorflow", "tensorflow-cpu"), "keras": ("keras",), "numpy": ("numpy",)}


def version_of(*distributions: str) -> str | None:
    """Return the version of the first of these distributions that is installed; None if none is."""
    for distribution in distributions:
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def find_package(name: str) -> tuple[str | None, str | None]:
    """Return the version of a package and its folder; None if not known."""
    spec = importlib.util.find_spec(name)
    if spec is None:
        return None, None
    return version_of(*PACKAGES.get(name, (name,))), spec.origin and os.path.dirname(spec.origin)


def check_installed() -> None:
    """Check the versions of TensorFlow and Keras, before a process imports them."""
    installed = {name: version_of(*PACKAGES[name.lower()]) for name in SUPPORTED if name.lower() in PACKAGES}
    check({name: version for name, version in installed.items() if version is not None})


def _needed(module: str, what: str, fix: str) -> Any:
    """Import a module of a package that only ``what`` needs."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ArgumentError(f"{what} needs {package}.", received=f"no {package}", fix=fix) from error


def data_frame(rows: object, columns: list[str]) -> Any:
    """Make a pandas data frame."""
    return _needed("pandas", "to_frame()", "pip install 'tfdistr[frame]'").DataFrame(rows, columns=columns)


def tensorflow_datasets() -> Any:
    """Import TensorFlow Datasets."""
    import tensorflow_datasets

    if not hasattr(tensorflow_datasets, "core"):
        found = ", ".join(f"{name} {version_of(name)}" for name in ("tensorflow-metadata", "protobuf"))
        raise VersionError(
            "TensorFlow Datasets needs a tensorflow-metadata that works with the protobuf of TensorFlow.",
            received=found,
            fix="pip install 'tensorflow-metadata<1.21'",
        )
    return tensorflow_datasets


def figure(width: float, height: float) -> Any:
    """Make an empty matplotlib figure. The size is in inches."""
    made = _needed("matplotlib.figure", "plot()", "pip install 'tfdistr[plot]'")
    return made.Figure(figsize=(width, height), layout="constrained")


def parquet(what: str) -> tuple[Any, Any]:
    """Import pyarrow and its module for parquet files. ``what`` names the feature that needs them."""
    fix = "pip install 'tfdistr[parquet]'"
    return _needed("pyarrow", what, fix), _needed("pyarrow.parquet", what, fix)


def array_record(what: str) -> Any:
    """Import the module of array_record that reads files. ``what`` names the feature that needs it."""
    return _needed("array_record.python.array_record_module", what, "pip install array_record")
