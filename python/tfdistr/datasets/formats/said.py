"""What a library says of a file, for our errors."""

from __future__ import annotations

import re

# The place of an op in the program of TensorFlow, which says nothing of the file.
_OF_TENSORFLOW = re.compile(r"\{\{function_node [^}]*\}\} | \[Op:\w+\]|Name: <unknown>, ")


def said(error: Exception) -> str:
    """Return the first line of an error, or its class if it has no text."""
    text = _OF_TENSORFLOW.sub("", str(error)).strip()
    return text.splitlines()[0] if text else type(error).__name__
