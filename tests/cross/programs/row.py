"""A Python session that evaluates a row: alone, or as a worker that is started by hand.

Usage: row.py ROW OUTPUT   (ROW is a file of JSON; what the row gives goes to OUTPUT)
"""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ["SESSION"] = str(os.getpid())  # for callbacks that kill it

if __name__ == "__main__":
    import in_python

    observed = in_python.observe(json.loads(Path(sys.argv[1]).read_text()))
    Path(sys.argv[2]).write_text(json.dumps(observed))
