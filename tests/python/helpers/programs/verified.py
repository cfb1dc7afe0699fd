"""Checks a run of the usual model: ``verified.py RUN``."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
import tfdistr

if __name__ == "__main__":
    from resumed import X, Y, model

    found = tfdistr.verify(sys.argv[1], model, X, Y)
    differences = [each.difference for each in found.intervals]
    print(json.dumps({"agrees": found.agrees, "differences": differences}), flush=True)
