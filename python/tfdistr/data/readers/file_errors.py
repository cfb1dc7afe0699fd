"""Errors about files, with what a library says of them."""

from __future__ import annotations

import re

from tfdistr.errors import ArgumentError

# The place of an op in the program of TensorFlow, which says nothing of the file.
_OF_TENSORFLOW = re.compile(r"\{\{function_node [^}]*\}\} | \[Op:\w+\]|Name: <unknown>, ")


def said(error: Exception) -> str:
    """Return the first line of an error, or its class if it has no text."""
    text = _OF_TENSORFLOW.sub("", str(error)).strip()
    return text.splitlines()[0] if text else type(error).__name__


def damaged(kind: str, received: str) -> ArgumentError:
    """Make the error for a file that is not a whole file of its kind, such as "Parquet files"."""
    return ArgumentError(
        f"`files` must be whole {kind}.", received=received, fix="Write the file again, or leave it out."
    )
