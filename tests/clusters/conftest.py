"""The helpers of the tests of the core are used here too."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "python" / "helpers"))

from elsewhere import lab, net, ray

__all__ = ["lab", "net", "ray"]
