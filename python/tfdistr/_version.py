"""The version, which is also that of the R package."""

__version__ = "0.1.0"
