"""What distributed_fit() says that it has used, where it was asked for something.

Usage: communication.py ASKED   (prints it after "used: ")
"""

import sys

import numpy as np

import tfdistr

X = np.arange(32, dtype="float32").reshape(16, 2)


def model():
    import keras

    made = keras.Sequential([keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made


if __name__ == "__main__":
    asked = sys.argv[1]
    fit = tfdistr.distributed_fit(
        model,
        X,
        X[:, :1],
        batch_size=8,
        seed=1,
        strategy=tfdistr.multi_worker_mirrored(communication=asked),
        verbose=0,
    )
    print(f"used: {fit.params['communication']}\n", end="", flush=True)  # one write: ranks share the output
