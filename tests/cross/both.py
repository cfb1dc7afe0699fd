"""A process with R and Python, which evaluates the rows that it is sent: a line of JSON for each."""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import bridge
import in_python

import tfdistr
from tfdistr import errors

HERE = Path(__file__).parent

KINDS = {
    kind.kind: name for name, kind in vars(errors).items() if isinstance(kind, type) and hasattr(kind, "kind")
}


def in_language(row: dict[str, Any], way: str) -> Any:
    """What one way of a row gives, as JSON."""
    if way == "python":
        try:
            value = in_python.evaluate({"call": row["call"], "arguments": row.get("arguments", {})})
            return {"value": in_python.plain(in_python.see(value, row.get("see", "value")))}
        except (Exception, tfdistr.JobStoppedError) as error:
            return {"error": in_python.error(error)}
    made = in_python.evaluate_arguments(row.get("arguments", {})) if way == "r_from_python" else {}
    bridge.r("row <- py_to_r(row); way <- py_to_r(way)", row=json.dumps(row), way=way, made=made)
    observed = bridge.from_r("observe(row, way, made)")
    if isinstance(observed, dict) and set(observed) == {"error"}:
        return {"error": of_r(observed["error"])}
    if isinstance(observed, dict) and set(observed) == {"python"}:
        return {"error": observed["python"]}
    return {"value": observed}


def of_r(error: dict[str, Any]) -> dict[str, Any]:
    """An error of R as `in_python.error` describes one of Python."""
    classes = error["classes"] if isinstance(error["classes"], list) else [error["classes"]]
    if "tfdistr_error" not in classes:
        return {"class": classes[0], "message": error["text"]}
    name = KINDS[classes[0].removeprefix("tfdistr_error_")]
    if name == "WorkerFailedError":
        known = {key: error[key] for key in ("traceback", "worker", "exit_code")}
        return {"class": name, "message": error["message"].split(" of ")[0], **known}
    return {"class": name, **{key: error[key] for key in ("message", "received", "fix")}}


def answer(request: dict[str, Any]) -> Any:
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
