"""The errors of models that workers cannot have a copy of."""

from __future__ import annotations

import re

from tfdistr.errors import ArgumentError

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
