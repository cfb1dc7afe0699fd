"""Makes a step of a run of the usual model again: ``replayed.py RUN STEP``."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
import tfdistr

if __name__ == "__main__":
    from resumed import X, Y, model

    again = tfdistr.replay(sys.argv[1], int(sys.argv[2]), model, X, Y)
    first = next(row["step"] for row in again.steps if row["again"])
    print(json.dumps({"difference": again.difference, "first": first, "rows": len(again.rows)}), flush=True)
