"""The helpers of the tests of the core are those of the engines, too."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "python" / "helpers"))

from elsewhere import kubernetes, lab, net, ray

__all__ = ["kubernetes", "lab", "net", "ray"]
