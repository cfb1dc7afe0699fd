"""What both programs of the benchmark of parameter servers train on."""

from __future__ import annotations

from typing import Any

import numpy as np

BATCH, EXAMPLES, CLASSES = 100, 55_000, 10
RATE = 0.5


def examples() -> tuple[Any, Any]:
    """Images and labels of the size of MNIST's, which a softmax regression can learn."""
    random = np.random.default_rng(1)
    x = random.random((EXAMPLES, 784), "float32")
    scores = (x - 0.5) @ random.normal(size=(784, CLASSES)).astype("float32")
    return x, scores.argmax(1)
