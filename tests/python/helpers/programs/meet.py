"""A worker that meets its peers, without TensorFlow, and says how that ended.

Usage: meet.py JSON   (JSON: tasks, own, timeout; may have fields, token, and wait, seconds before it begins)
"""

import json
import os
import sys
import time

from tfdistr.errors import TfdistrError
from tfdistr.rendezvous.meeting import meet

given = json.loads(sys.argv[1])
os.environ["TFDISTR_TOKEN"] = given.get("token", "")
time.sleep(given.get("wait", 0))
began = time.monotonic()
try:
    meet(given["tasks"], given["own"], given.get("fields", {}), given["timeout"])
    said = "all are there"
except TfdistrError as error:
    said = f"{type(error).__name__}: {error}"
print(json.dumps({"said": said, "seconds": time.monotonic() - began}), flush=True)
