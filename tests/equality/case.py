"""What a case of the comparison is, and what data most of them use."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
import tensorflow as tf

WAYS = ("drop-in", "distributed_fit")
BATCH = 32

Data = tuple[Any, ...] | Callable[[], tf.data.Dataset]

rng = np.random.default_rng(0)
X = rng.normal(size=(200, 8)).astype("float32")
Y = (X[:, :4].sum(1) > 0).astype("int32")
WEIGHT = rng.uniform(size=200).astype("float32")
# Sentences of 1 to 6 words, filled up with 0.
TOKENS = rng.integers(1, 20, size=(200, 6)) * (np.arange(6) <= rng.integers(0, 6, size=(200, 1)))


def examples(count: int) -> tuple[np.ndarray, np.ndarray]:
    return X[:count], Y[:count]


EXAMPLES = examples(101)  # batches of 32, 32, 32 and 5
WEIGHTED = (*EXAMPLES, WEIGHT[:101])
BINARY = (X[:101], Y[:101, np.newaxis].astype("float32"))
SENTENCES = (TOKENS[:101], Y[:101])


@dataclass(frozen=True)
class Case:
    """A model, its data, and how exactly its results on many workers must be those on one.

    Attributes:
        model: Builds and compiles the model.
        data: What it is trained on: ``(x,)``, ``(x, y)`` or ``(x, y, sample_weight)``, or a pipeline.
        validation: What it is validated on, if it is.
        held_out: What ``evaluate`` and ``predict`` get; by default the first 50 examples, or two
            batches, of ``data``.
        callbacks: Makes the callbacks.
        fit: Other arguments of ``fit`` and ``distributed_fit``.
        predicts: Whether the model can predict: it has ``call()``.
        batch: Size of the global batch, where `data` is arrays.
        arrays: Whether ``fit`` under the strategy gets the arrays themselves.
        bound: Largest difference, relative to values above 1.
        predict_bound: The same for predictions, if it is another.
        limit: Seconds within which the case must end; None for the runner's default.
        drop_in_only: Why there is no such case for ``distributed_fit``; empty if there is.
        not_mirrored: Why several devices of one process cannot train it; empty if they can.
        only_virtual: Why only virtual workers can train it with the same result; empty if all can.
        not_virtual: Why virtual workers cannot train it; empty if they can.
        known: Why it is known to miss its bound or to fail; empty if it does not. If it then does not fail,
            that is a failure.
        expects: What may come of it on several workers: "equal" results, or something "said" (a warning or a
            progress line, whatever the results), or an error by which tfdistr has "refused" it. " or " joins
            several.
        because: Regular expression for the true reason, which the warning or the error must name.
        quiet: Whether equal results must come without a warning.
        random: Whether workers draw other random numbers than one worker: they are compared with each other.
    """

    model: Callable[[], keras.Model]
    data: Data = EXAMPLES
    validation: Data | None = None
    held_out: Data | None = None
    callbacks: Callable[[], list[keras.callbacks.Callback]] | None = None
    fit: dict[str, Any] = field(default_factory=dict)
    predicts: bool = True
    batch: int = BATCH
    arrays: bool = False
    bound: float = 1e-6
    predict_bound: float | None = None
    limit: float | None = None
    drop_in_only: str = ""
    not_mirrored: str = ""
    only_virtual: str = ""
    not_virtual: str = ""
    known: str = ""
    expects: str = "equal"
    because: str = ""
    quiet: bool = False
    random: bool = False

    def allows(self, outcome: str) -> bool:
        """Whether "equal", "said" or "refused" is expected."""
        return outcome in self.expects.split(" or ")

    def names_reason(self, text: str) -> bool:
        return re.search(self.because, text, re.IGNORECASE) is not None

    def bound_of(self, group: str) -> float:
        """The bound of "weights", "history", "evaluate" or "predict"."""
        return self.predict_bound or self.bound if group == "predict" else self.bound

    @property
    def ways(self) -> tuple[str, ...]:
        return WAYS[:1] if self.drop_in_only else WAYS


CASES: dict[str, Case] = {}


def case(model: Callable[[], keras.Model] | None = None, **settings: Any) -> Any:
    """Add a model function to the cases; what is no attribute of a case is an argument of ``fit``."""

    def add(function: Callable[[], keras.Model]) -> Callable[[], keras.Model]:
        own = {name: value for name, value in settings.items() if name in Case.__dataclass_fields__}
        fit = {name: value for name, value in settings.items() if name not in own}
        if function.__name__ in CASES:
            raise ValueError(f"Two cases have the name {function.__name__}.")
        CASES[function.__name__] = Case(function, fit={"epochs": 2} | fit, **own)
        return function

    return add if model is None else add(model)
