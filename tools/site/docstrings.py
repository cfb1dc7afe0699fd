"""What Griffe, which reads the docstrings, does not know of them: `Example:` begins an example in code."""

import re
from typing import Any

import griffe


class Examples(griffe.Extension):
    """Gives the section the name that Griffe knows; it shows others as prose, in a box."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
