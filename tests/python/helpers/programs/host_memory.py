"""What the workers of a host keep in memory, as one worker of several.

Usage: host_memory.py FOLDER DATA_DIR LIMIT   (writes FOLDER/<worker>.npz and .json)

FOLDER holds a job's arrays as "arrays"; DATA_DIR the data set "pictures". LIMIT is the number of bytes that
a file may have, or 0. In the end worker 0 kills the others and then itself.
"""

import json
import logging
import os
import re
import resource
import signal
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

import tfdistr

strategy = tfdistr.MultiWorkerMirroredStrategy()

import tensorflow as tf  # noqa: E402

from tfdistr.data.datasets import Dataset  # noqa: E402
from tfdistr.data.order.context import WorkerContext  # noqa: E402
from tfdistr.data.pipeline.host_cache import HostMemory  # noqa: E402
from tfdistr.data.pipeline.worker_data import make_data  # noqa: E402
from tfdistr.utils.pickles import load_value  # noqa: E402

folder, data_dir, limit = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
index, exchange = strategy.worker_index, strategy.extended.collectives.exchange
decoded: list[int] = []
logged: list[str] = []


class Notes(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        logged.append(record.getMessage())


def resident(name: str) -> int:
    """Bytes of the mappings of a file, each page divided by the number of processes that have it."""
    entries = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text(), flags=re.M)
    ours = [entry for entry in entries if entry.partition("\n")[0].endswith(name)]
    return sum(int(re.search(r"^Pss: +(\d+) kB", entry, re.M)[1]) * 1024 for entry in ours)


def counted(self: Dataset, record: tf.Tensor, decode: Any = Dataset.decode) -> Any:
    image, label = decode(self, record)
    note = tf.numpy_function(lambda i: decoded.append(int(i)) or i, [label], tf.int64)
    note.set_shape([])
    return image, note


Dataset.decode = counted
logging.getLogger("tfdistr").addHandler(Notes(logging.WARNING))
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
context = WorkerContext(strategy.num_workers, index, 32, seed=3)
memory = HostMemory.join(exchange)
data = make_data(tfdistr.load_dataset("pictures", data_dir=data_dir), context, memory=memory)
other = make_data(
    tfdistr.load_dataset("pictures", "train[:10]", data_dir=data_dir), context, memory=memory
)
steps = data.steps
assert steps is not None
assert data.arrays is not None
assert other.arrays is not None
batches = [data.arrays.batch(step) for step in range(steps)]
exchange("one pass is over")
in_pass = list(decoded)
batches += list(data.dataset.skip(steps).take(steps))
small = other.arrays.batch(0)
(arrays,) = load_value(folder, "arrays")
total = int(arrays.sum())  # touches every page
exchange("all is in memory")
pss = {"examples": resident("/memfd:tfdistr (deleted)"), "arrays": resident("/arrays.buffers")}
exchange("all have looked")
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
np.savez(
    folder / f"{index}.npz",
    images=np.concatenate([image for image, _ in batches]),
    labels=np.concatenate([label for _, label in batches]),
    rows=[len(label) for _, label in batches],
    small=small[1],
)
found = {
    "pid": os.getpid(),
    "pss": pss,
    "decoded": decoded,
    "in_pass": in_pass,
    "log": logged,
    "total": total,
}
(folder / f"{index}.json").write_text(json.dumps(found))
pids = [int(text) for text in exchange(str(os.getpid()))]
if index == 0:
    for pid in (*pids[1:], pids[0]):
        os.kill(pid, signal.SIGKILL)
signal.pause()
