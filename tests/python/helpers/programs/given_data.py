"""Keras's fit on data of several kinds, as one worker of two. Its loss shows which examples it used.

Usage: given_data.py FOLDER   (writes FOLDER/<index>.json: the losses of two epochs, or the error)
"""

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import tfdistr

strategy = tfdistr.MultiWorkerMirroredStrategy(start_timeout=60)

import keras  # noqa: E402
import tensorflow as tf  # noqa: E402

FOLDER, INDEX = Path(sys.argv[1]), strategy.worker_index
#: The sum of no other selection of them is the same.
Y = (2.0 ** np.arange(16, dtype="float32"))[:, np.newaxis] / 2**15
X = np.zeros_like(Y)


class Batches(keras.utils.PyDataset):
    """Batches whose order Keras shuffles by ``random``, with rows that ``numpy.random`` shuffles."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = np.random.permutation(16)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, number: int) -> Any:
        rows = self.rows[4 * number : 4 * number + 4]
        return X[rows], Y[rows]


def shuffled() -> Iterator[Any]:
    while True:
        rows = np.random.permutation(16)
        for first in range(0, 16, 4):
            yield X[rows[first : first + 4]], Y[rows[first : first + 4]]


def dataset() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, Y))


def with_policy(name: str) -> tf.data.Dataset:
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy[name]
    return dataset().shuffle(16).batch(4).with_options(options)


def fit(data: Any, **arguments: Any) -> Any:
    with strategy.scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
        model.compile(keras.optimizers.SGD(0.1), keras.losses.MeanAbsoluteError())
    try:
        return model.fit(data, epochs=2, verbose=0, **arguments).history["loss"]
    except tfdistr.TfdistrError as error:
        return f"{type(error).__name__}: {error}"


def sampled() -> tf.data.Dataset:
    sources = [dataset().take(8), dataset().skip(8)]
    return tf.data.Dataset.sample_from_datasets(sources).batch(4)


def with_own_seed() -> tf.data.Dataset:
    keras.utils.set_random_seed(INDEX)
    made = dataset().shuffle(16).batch(4)
    keras.utils.set_random_seed(1)
    return made


found = {
    "random": random.random(),
    "PyDataset": fit(Batches()),
    "generator": fit(shuffled(), steps_per_epoch=4),
    "OFF": fit(with_policy("OFF")),
    "HINT": fit(with_policy("HINT")),
    "sampled": fit(sampled()),
    "cache": fit(dataset().cache(str(FOLDER / "cache")).batch(4)),
    "other seeds": fit(with_own_seed()),
}
(FOLDER / f"{INDEX}.json").write_text(json.dumps(found))
