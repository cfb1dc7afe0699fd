"""The versions of the packages of this Python, of which none is imported."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os

from tfdistr.supported import SUPPORTED, check

#: The distributions of the packages that matter. A package may come from any of its distributions.
PACKAGES = {"tensorflow": ("tensorflow", "tensorflow-cpu"), "keras": ("keras",), "numpy": ("numpy",)}


def version_of(*distributions: str) -> str | None:
    """Return the version of the first of these distributions that is installed; None if none is.

    Example:
        >>> version_of("no-such-package") is None
        True
    """
    for distribution in distributions:
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def find_package(name: str) -> tuple[str | None, str | None]:
    """Return the version of a package and its folder; None for what is not known.

    Args:
        name: The name of its module.
    """
    spec = importlib.util.find_spec(name)
    if spec is None:
        return None, None
    return version_of(*PACKAGES.get(name, (name,))), spec.origin and os.path.dirname(spec.origin)


def check_installed() -> None:
    """Check the versions of TensorFlow and Keras, before a process imports them.

    A package that is not installed under its usual name is checked when it is imported.

    Raises:
        VersionError: tfdistr does not work with one of the versions.
    """
    installed = {name: version_of(*PACKAGES[name.lower()]) for name in SUPPORTED if name.lower() in PACKAGES}
    check({name: version for name, version in installed.items() if version is not None})
