"""The lines of an error."""

from collections.abc import Callable
from typing import Any

import pytest


def refusal(kind: type[Exception], call: Callable[..., Any], *values: Any, **arguments: Any) -> list[str]:
    with pytest.raises(kind) as caught:
        call(*values, **arguments)
    return str(caught.value).splitlines()
