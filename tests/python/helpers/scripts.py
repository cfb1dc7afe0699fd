"""Scripts that a test lets ``tfdistr run`` start, and their workers."""

import re
import time
from pathlib import Path

#: What each worker of a script writes first.
PID = "import os, pathlib\npathlib.Path(f'pid-{os.getpid()}').touch()\n"


def train(options: str = "") -> str:
    """A script that trains on all its workers, with further arguments, and prints its losses."""
    return f"""
import sys
import tfdistr

def model():
    import keras
    made = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(10, "softmax")])
    made.compile("sgd", "sparse_categorical_crossentropy")
    return made

options = dict(batch_size=60, epochs=2, seed=1, verbose=0) | dict({options})
fit = tfdistr.distributed_fit(model, tfdistr.load_dataset("digits", "test"), **options)
print("loss", *fit.history["loss"], fit.params["workers"], fit.params["communication"], sys.argv[1:])
"""


def losses(said: str) -> list[list[float]]:
    """The losses that each worker has printed."""
    return [[float(loss) for loss in re.findall(r"\d\.\d+", line)]
            for line in said.splitlines() if re.match(r"(\[worker \d\] )?loss ", line)]  # fmt: skip


def pids(folder: Path) -> list[int]:
    """The process ids of the workers that have begun their script."""
    return [int(path.name.removeprefix("pid-")) for path in folder.glob("pid-*")]


def wait_for_workers(folder: Path, number: int) -> list[int]:
    """Wait until so many workers have begun their script."""
    end = time.monotonic() + 60
    while len(pids(folder)) < number:
        assert time.monotonic() < end, "the workers have not begun"
        time.sleep(0.05)
    return pids(folder)
