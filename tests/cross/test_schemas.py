"""A document that R's jsonlite has read and written means the same, with each of its settings."""

import json
import math
import subprocess
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tfdistr.rendezvous.config import tf_config
from tfdistr.schemas import NAMES, load_schema, normalise, read

PROGRAM = Path(__file__).parent / "programs" / "jsonlite.R"
AUTO_UNBOX = (True, False)
DIGITS = (None, 4, 15, "NA")
NULL = (None, "list", "null")
NA = (None, "null", "string")

Rewrite = Callable[..., str]


@pytest.fixture(scope="module")
def rewrite() -> Iterator[Rewrite]:
    """R's ``toJSON(fromJSON(text))``."""
    with subprocess.Popen(
        ["Rscript", "--vanilla", str(PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin
        assert process.stdout

        def ask(document: Any, *, simplify: bool, **settings: Any) -> str:
            given = {name: value for name, value in settings.items() if value is not None}
            request = {"text": json.dumps(document), "simplify": simplify, "settings": given}
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
            assert line, "R has ended"
            return line

        yield ask
        process.stdin.close()
        process.wait(20)


def same(one: Any, other: Any) -> bool:
    """Whether two documents say the same.

    R leaves out members that are null. In the rows of a data frame, an object that is not there is empty. R
    writes 15 digits.
    """
    if isinstance(one, dict) and isinstance(other, dict):
        nothing = (None, {})
        names = {
            name for name in (*one, *other) if one.get(name) not in nothing or other.get(name) not in nothing
        }
        return all(name in one and name in other and same(one[name], other[name]) for name in names)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) or isinstance(other, float):
        close = math.isclose(one, other, rel_tol=1e-14, abs_tol=5e-324)
        return close or (math.isnan(one) and math.isnan(other))
    return type(one) is type(other) and one == other


@pytest.mark.parametrize("name", NAMES)
def test_examples_with_each_setting(rewrite: Rewrite, name: str) -> None:
    for example in load_schema(name)["examples"]:
        for simplify, auto_unbox, digits, null, na in product((True, False), AUTO_UNBOX, DIGITS, NULL, NA):
            text = rewrite(example, simplify=simplify, auto_unbox=auto_unbox, digits=digits, null=null, na=na)
            assert same(read(name, text), normalise(name, example)), text


@pytest.mark.parametrize("simplify", [True, False])
@pytest.mark.parametrize("auto_unbox", AUTO_UNBOX)
def test_tf_config(rewrite: Rewrite, simplify: bool, auto_unbox: bool) -> None:
    for config in tf_config(worker=["a:1", "b:1"], chief="d:1", ps="c:1"):  # type: ignore[union-attr]
        document = json.loads(config.to_json())
        assert read("tf_config", rewrite(document, simplify=simplify, auto_unbox=auto_unbox)) == document
