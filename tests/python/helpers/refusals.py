"""The lines of an error."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest


def refusal(kind: type[Exception], call: Callable[..., Any], *values: Any, **arguments: Any) -> list[str]:
    with pytest.raises(kind) as caught:
        call(*values, **arguments)
    return str(caught.value).splitlines()


def assert_says(error: BaseException | list[str], parts: Sequence[str]) -> None:
    """The text of an error, or its lines, has these parts."""
    text = "\n".join(error) if isinstance(error, list) else str(error)
    assert [part for part in parts if part not in text] == [], text
