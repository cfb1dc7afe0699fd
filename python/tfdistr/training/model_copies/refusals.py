"""Models that workers cannot have a copy of: their errors, and the model that stays in this process."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NoReturn

from tfdistr.errors import ArgumentError

if TYPE_CHECKING:
    import keras

#: The fix that always helps.
PASS_A_FUNCTION = "pass a function that builds and compiles the model: every worker calls it."
_SHOWN = 300  # characters
_STYLES = re.compile(r"\x1b\[\d+m")  # the bold words of Keras's messages


def cannot_serialize(what: str, fix: str | None = None) -> ArgumentError:
    """Return the error for a part of a model; ``fix`` is an alternative to passing a function."""
    usual = "Use named functions, and classes with `get_config()`, without references to this process"
    return ArgumentError(
        "Cannot serialize `model` for the workers.",
        received=what,
        fix=f"{fix or usual}, or {PASS_A_FUNCTION}",
    )


def has_lambda(config: object) -> bool:
    """Return whether the description of a model has a lambda."""
    if isinstance(config, dict):
        return config.get("class_name") == "__lambda__" or any(map(has_lambda, config.values()))
    return isinstance(config, list | tuple) and any(map(has_lambda, config))


def cannot_rebuild(error: Exception) -> ArgumentError:
    """Return the error for a model that Keras cannot make from its configuration."""
    while error.__context__ is not None and isinstance(error.__context__, Exception):
        error = error.__context__  # Keras repeats the whole configuration around it
    reason = " ".join(_STYLES.sub("", str(error)).split())
    return ArgumentError(
        "Cannot rebuild `model` from its configuration, as the workers must.",
        received=f"{type(error).__name__}: {reason[:_SHOWN]}",
        fix=f"Correct get_config() and from_config() of its parts, or {PASS_A_FUNCTION}",
    )


def refuse(difference: object) -> None:
    """Raise the error for a difference between a model and its copy, if there is one."""
    if difference is not None:
        raise ArgumentError(
            "Cannot copy `model` exactly for the workers.",
            received=str(difference),
            fix=f"Describe it in get_config(), or {PASS_A_FUNCTION}",
        )


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
