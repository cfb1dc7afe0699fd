"""The training of ps_loop.py by distributed_fit(): python ps_fit.py WORKERS UPDATE EPOCHS FOLDER"""

from __future__ import annotations

import sys
from typing import Any

import measure
import ps_data

import tfdistr


def model() -> Any:
    """The softmax regression."""
    import keras

    net = keras.Sequential([keras.Input((784,)), keras.layers.Dense(ps_data.CLASSES, "softmax")])
    net.compile(keras.optimizers.SGD(ps_data.RATE), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return net


def main() -> None:
    workers, update, epochs, folder = sys.argv[1:]
    tfdistr.distributed_fit(
        model, *ps_data.examples(), batch_size=ps_data.BATCH, epochs=int(epochs), verbose=0,
        cluster=tfdistr.local_cluster(int(workers), ps=1), strategy=tfdistr.parameter_server(update=update),
        callbacks=lambda: [measure.callback(folder)],
    )  # fmt: skip


if __name__ == "__main__":
    main()
