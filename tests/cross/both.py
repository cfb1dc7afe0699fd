"""A process with R and Python, which evaluates the rows that it is sent: a line of JSON for each.

A line may ask something of in_types.py instead.
"""

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import bridge
import in_python

HERE = Path(__file__).parent


def in_language(row: dict[str, Any], way: str) -> Any:
    """What one way of a row gives, as JSON."""
    if way == "python":
        return in_python.observe(row)
    made = in_python.evaluate_arguments(row.get("arguments", {})) if way == "r_from_python" else {}
    bridge.r("row <- py_to_r(row); way <- py_to_r(way)", row=json.dumps(row), way=way, made=made)
    observed = bridge.from_r("observe(row, way, made)")
    return in_python.of_r(observed)


def answer(request: dict[str, Any]) -> Any:
    if "ask" in request:
        import in_types

        return in_types.answer(request)
    environment = request["row"].get("environment", {})
    os.environ.update(environment)
    try:
        return in_language(request["row"], request["way"])
    except BaseException:
        return {"broken": traceback.format_exc()}
    finally:
        for name in environment:
            del os.environ[name]


def main(replies: int) -> None:
    bridge.r("in_python <- import('in_python', convert = FALSE)")
    os.environ["MODELS_IN_R"] = str(HERE / "models.R")
    bridge.r(f"source({str(HERE / 'in_r.R')!r})")
    with open(replies, "w") as file:
        for line in sys.stdin:
            print(json.dumps(answer(json.loads(line))), file=file, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
