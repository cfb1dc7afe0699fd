"""The random states of one worker: of Python, NumPy, and a language that calls Python."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from tfdistr.checkpoint.callback_state import Array, from_plain, to_plain
from tfdistr.utils.interrupts import defer_sigint

_foreign: dict[str, tuple[Callable[[], str], Callable[[str], object]]] = {}


def keep_random_numbers(language: str, get: Callable[[], str], restore: Callable[[str], object]) -> None:
    """Add the random numbers of another language to checkpoints.

    Args:
        language: The name of the language.
        get: Called without arguments; returns the state as text.
        restore: Called with this text; restores the state.
    """
    _foreign[language] = (defer_sigint(get), defer_sigint(restore))


def random_state(arrays: list[Array]) -> dict[str, Any]:
    """Return the states of the random numbers."""
    own = {
        "python": to_plain(random.getstate(), arrays),
        "numpy": to_plain(np.random.get_state(), arrays),
    }
    return own | {language: str(get()) for language, (get, _) in _foreign.items()}


def set_random_state(state: dict[str, Any], arrays: list[Array]) -> None:
    """Restore the states of the random numbers."""
    random.setstate(from_plain(state["python"], arrays))
    np.random.set_state(from_plain(state["numpy"], arrays))
    for language, (_, restore) in _foreign.items():
        if language in state:
            restore(state[language])
