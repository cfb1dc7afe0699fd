"""The helpers of the tests of the core are those of the engines, too."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "python" / "helpers"))

from elsewhere import lab, net

__all__ = ["lab", "net"]
