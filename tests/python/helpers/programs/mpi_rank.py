"""What the strategy does where MPI carries its collectives, as one rank of two; then it fails on one of them.

Usage: mpi_rank.py FOLDER   (writes FOLDER/<rank>.json)
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import tfdistr

strategy = tfdistr.MultiWorkerMirroredStrategy()

import keras  # noqa: E402
import tensorflow as tf  # noqa: E402

INDEX = strategy.worker_index


def plain(value: object) -> object:
    return tf.nest.map_structure(lambda part: np.asarray(part).tolist(), value)


one = tf.constant(INDEX + 1.0)


@tf.function
def kinds() -> list[tf.Tensor]:
    """Sums of 16-bit numbers, and of rows."""
    context = tf.distribute.get_replica_context()
    rows = tf.IndexedSlices(tf.ones([1, 2]), [INDEX], [2, 2])
    sums = [context.all_reduce("SUM", tf.cast(one, kind)) for kind in (tf.float16, tf.bfloat16)]
    return [
        *(tf.cast(total, tf.float32) for total in sums),
        tf.convert_to_tensor(context.all_reduce("SUM", rows)),
    ]


LARGE = tf.reshape(tf.range(320_000, dtype=tf.float32), [2, -1])  # more than is copied into a pack


@tf.function
def large_and_small() -> list[tf.Tensor]:
    """Sums of tensors of which some go out as they lie, and some in one piece."""
    own = [one * LARGE, one * tf.ones([3]), one * (LARGE + 1), tf.zeros([0]), one]
    return tf.distribute.get_replica_context().all_reduce("SUM", own)


def large_and_small_twice() -> bool:
    """Whether the sums are right, also after the next ones were made."""
    kept = [strategy.run(large_and_small) for _ in range(3)]
    right = [3 * LARGE, tf.fill([3], 3.0), 3 * (LARGE + 1), tf.zeros([0]), tf.constant(3.0)]
    return all(np.array_equal(a, b) for sums in kept for a, b in zip(sums, right, strict=True))


@tf.function
def used_elsewhere() -> list[tf.Tensor]:
    """Sums of what others need as it is: for another sum, for the result, or as a variable."""
    context = tf.distribute.get_replica_context()
    twice = [tf.sqrt(one * LARGE), tf.sqrt(one * LARGE)]  # TensorFlow makes one tensor of these
    needed = one * LARGE
    sums = context.all_reduce("SUM", [*twice, needed, held.value(), LARGE])
    return [*sums, tf.reshape(needed, [-1]), held.value(), LARGE + 0]


def used_elsewhere_right() -> bool:
    """Whether sums leave alone what they are made of."""
    roots = np.sqrt(LARGE) + np.sqrt(2 * LARGE)
    right = [roots, roots, 3 * LARGE, 2 * LARGE, 2 * LARGE, tf.reshape(one * LARGE, [-1]), LARGE, LARGE]
    return all(
        np.allclose(a, b, rtol=1e-6)
        for _ in range(3)
        for a, b in zip(strategy.run(used_elsewhere), right, strict=True)
    )


def eagerly() -> tf.Tensor:
    return tf.distribute.get_replica_context().all_reduce("SUM", one * LARGE)


held = tf.Variable(LARGE)
with strategy.scope():
    variable = tf.Variable([10.0 * INDEX, 1.0])  # the chief's takes its place
    text = tf.Variable(f"of {INDEX}")

found: dict[str, Any] = {
    "workers": [strategy.num_workers, INDEX, strategy.is_chief],
    "large and small": large_and_small_twice(),
    "used elsewhere": used_elsewhere_right(),
    "eager": np.array_equal(strategy.run(eagerly), 3 * LARGE) and np.array_equal(LARGE[0, :2], [0, 1]),
    "gathered text": [
        part.decode() for part in strategy.gather(tf.constant([f"from {INDEX}"]), axis=0).numpy()
    ],
    "kinds": plain(strategy.run(kinds)),
    "variables": [plain(variable.read_value()), text.read_value().numpy().decode()],
}  # fmt: skip
try:
    strategy.barrier("both", 60)
    if INDEX == 0:
        strategy.barrier("alone", 1.0)
except tfdistr.ClusterStartError as error:
    found["barrier"] = str(error)
strategy.barrier("after it", 60)
Path(sys.argv[1], f"{INDEX}.json").write_text(json.dumps(found))


class Fails(keras.callbacks.Callback):
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if INDEX == 1 and epoch == 1:
            raise ValueError("the loss is green")


with strategy.scope():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
model.fit(np.ones((8, 2)), np.ones((8, 1)), batch_size=4, epochs=1000, verbose=0, callbacks=[Fails()])
