"""The version of this package and of the R package."""

__version__ = "0.3.0"
