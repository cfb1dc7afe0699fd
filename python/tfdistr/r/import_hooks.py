"""Actions of R packages after Python has imported a module, which wait until a strategy is made.

keras3 makes a tensor when Keras is imported. After the first tensor, TensorFlow joins no cluster.

Reticulate (1.41 to 1.46) has no public name for this. Its ``rpytools.loader`` runs the actions when no import
is going on; ``_recursion_depth`` counts the imports.
"""

from __future__ import annotations

import sys
from typing import Any

_holding: list[Any] = []  # the loader, if actions wait now


def hold_import_hooks() -> None:
    """Let the actions wait from now on."""
    loader: Any = sys.modules.get("rpytools.loader")
    if not _holding and hasattr(loader, "_recursion_depth") and hasattr(loader, "_maybe_run_hooks"):
        loader._recursion_depth += 1
        _holding.append(loader)


def run_import_hooks() -> None:
    """Run the actions that have waited, and let no more wait."""
    if _holding:
        loader = _holding.pop()
        loader._recursion_depth -= 1
        loader._maybe_run_hooks()
