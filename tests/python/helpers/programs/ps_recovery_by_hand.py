"""The chief of parameter servers started by hand, with checkpoints: ps_recovery_by_hand.py FOLDER [FAILS].

With "FAILS" it fails in the middle of the training.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import keras
import numpy as np

import tfdistr

rng = np.random.default_rng(0)
X = rng.normal(size=(97, 8)).astype("float32")
Y = (X[:, :4].sum(1) > 0).astype("int32")


def model() -> keras.Model:
    made = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(2)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"], jit_compile=False)
    return made


class Fails(keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.model.optimizer.iterations.numpy() == 12:
            raise RuntimeError("the disk is full")


if __name__ == "__main__":
    fit = tfdistr.distributed_fit(
        model, X, Y, strategy="parameter_server", update="sync", batch_size=16, epochs=3, seed=1, verbose=0,
        run_dir=f"{sys.argv[1]}/run", checkpoint_every=3, resume=True,
        callbacks=[Fails()] if "FAILS" in sys.argv else None,
    )  # fmt: skip
    weights = {f"weight_{i}": weight for i, weight in enumerate(fit.model.get_weights())}
    steps = fit.params["global_step"]
    np.savez(f"{sys.argv[1]}/result.npz", loss=fit.history["loss"], steps=steps, **weights)
    sys.stdout.flush()
    os._exit(0)
