"""Who this process is among the workers, before a strategy is made and after it.

Usage: place.py FOLDER [COMMUNICATION]   (writes FOLDER/<index>.json)
"""

import json
import sys
from pathlib import Path

import tfdistr

COMMUNICATION = sys.argv[2] if len(sys.argv) > 2 else "auto"


def place() -> list[object]:
    return [tfdistr.worker_index(), tfdistr.num_workers(), tfdistr.is_chief()]


found = {"before": place(), "without tensorflow": "tensorflow" not in sys.modules}
index = tfdistr.worker_index()
strategy = tfdistr.make_strategy(communication=COMMUNICATION)
found["after"] = place()
with strategy.scope():
    found["in scope"] = place()

import tensorflow as tf  # noqa: E402

try:
    tfdistr.distribute(tf.data.Dataset.range(4).batch(2))
    found["distribute"] = "all rows"
except tfdistr.ArgumentError as error:
    found["distribute"] = str(error.received)
Path(sys.argv[1], f"{index}.json").write_text(json.dumps(found))
