"""The version of this package and of the R package."""

__version__ = "0.1.0"
