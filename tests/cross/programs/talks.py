"""A job of Python whose workers print much at once. Usage: talks.py RUN_DIR warm|cold

The lines are those of `lines()`. In R: talks.R.
"""

import sys
from typing import Any

COUNT = 200
LONG = 100_000  # more than a pipe takes at once
SPECIAL = ["ümläut 漢字 🙂", "  two  spaces {x} [bold] <y> %s 'q' \"d\" \\n", "x" * LONG, ""]


def lines(worker: int) -> list[str]:
    """What a worker prints."""
    mark = f"@{worker} "
    counted = [f"{mark}{'out' if n % 2 else 'err'} {n}" for n in range(COUNT)]
    return [*counted, f"{mark}in three parts", *(mark + text for text in SPECIAL), f"{mark}end"]


def talk(worker: int) -> None:
    """Print these lines, alternately to both outputs; the last one has no end of line."""
    *said, partial, _, _, _, _, last = lines(worker)
    for number, line in enumerate(said):
        print(line, file=sys.stdout if number % 2 else sys.stderr)
    for part in (partial[:5], partial[5:10], partial[10:] + "\n"):
        print(part, end="")
    for text in SPECIAL:
        print(f"@{worker} {text}")
    print(last, end="", file=sys.stderr)


def callbacks() -> Any:
    import keras
    import talks

    import tfdistr

    index = tfdistr.worker_index()
    return [keras.callbacks.LambdaCallback(on_train_end=lambda logs: talks.talk(index))]


def model() -> Any:
    import keras

    made = keras.Sequential([keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made


if __name__ == "__main__":
    import numpy as np

    import tfdistr

    tfdistr.distributed_fit(
        model, np.ones((8, 2), "float32"), np.ones(8, "float32"), callbacks=callbacks, run_dir=sys.argv[1],
        cluster=tfdistr.local_cluster(2, follow=True, warm=sys.argv[2] == "warm"), verbose=0,
    )  # fmt: skip
