"""A compiled model with R code in it: only this process can have it, and no copy can be made."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from tfdistr.errors import ArgumentError

if TYPE_CHECKING:
    import keras


class ModelInPlace:
    """The caller's model itself, as a function without arguments, for ``Job``.

    Args:
        place: The place of the R code in it, such as "loss".
    """

    def __init__(self, model: keras.Model, place: str) -> None:
        self._model, self._place = model, place

    def __call__(self) -> keras.Model:
        """Return the model."""
        return self._model

    def refuse(self) -> NoReturn:
        """Raise the error where another process, or a strategy, needs a copy."""
        raise ArgumentError(
            "Cannot send `model` to workers: it has R code, which only this session can call.",
            received=f"an R function or class ({self._place})",
            fix="Pass the function that makes it, which each worker calls: "
            "build <- function() { model <- ...; compile(model, ...); model }; distributed_fit(build, ...).",
        )

    def __getstate__(self) -> object:
        self.refuse()
