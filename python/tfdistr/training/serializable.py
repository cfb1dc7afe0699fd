"""Errors for parts of a model that cannot be serialized for the workers."""

from __future__ import annotations

from typing import Any

from tfdistr.errors import ArgumentError

#: What always helps.
PASS_A_FUNCTION = "pass a function that builds and compiles the model: every worker calls it."


def cannot_serialize(what: str, fix: str | None = None) -> ArgumentError:
    """The error for a part of a model; ``fix`` is what helps besides passing a function."""
    usual = "Use functions with a name, and classes with `get_config()`, that hold nothing of this process"
    return ArgumentError(
        "Cannot serialize `model` for the workers.",
        received=what,
        fix=f"{fix or usual}, or {PASS_A_FUNCTION}",
    )


def has_lambda(config: Any) -> bool:
    """Return whether the description of a model has a lambda."""
    if isinstance(config, dict):
        return config.get("class_name") == "__lambda__" or any(map(has_lambda, config.values()))
    return isinstance(config, list | tuple) and any(map(has_lambda, config))
