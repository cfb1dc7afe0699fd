"""The versions of the packages of this Python, of which none is imported."""

from __future__ import annotations

import importlib.metadata

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
