"""Documents that are refused: each message has the rule, what was received, and the fix."""

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import assert_says, refusal

import tfdistr
from tfdistr.errors import ArgumentError
from tfdistr.schemas import load_schema, normalise, read, validate


def example(name: str, **changes: Any) -> dict[str, Any]:
    document: dict[str, Any] = copy.deepcopy(load_schema(name)["examples"][0])
    return {**document, **changes}


def without(document: dict[str, Any], member: str) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name != member}


WORKER = load_schema("result")["examples"][0]["workers"][0]
CLASSES = {**example("run")["job"], "class_weight": {"cat": 1.0}}
REFUSED = [
    ("result", example("result", schema="urn:tfdistr:result:2"),
     ["`schema` of result.json must be the version of this", 'Received: "urn:tfdistr:result:2"']),
    ("run", without(example("run"), "schema"),
     ['`run.json` must have the member "schema".', 'Fix: Add "schema": "urn:tfdistr:run:1".']),
    ("job", [1, 2],
     ['`job.json` must be a JSON object with the members "schema", "schemas",', "Received: [1, 2]",
      f"Fix: Write it like {json.dumps(example('job'))}."]),
    ("job", example("job", arguments={**example("job")["arguments"], "epochs": 1.5}),
     ["`arguments.epochs` of job.json must be the number of the epoch at", "Received: 1.5",
      "Fix: Write it like 2."]),
    ("run", example("run", job=CLASSES),
     ["`job.class_weight` of run.json must be an object whose names are", 'Received: "cat"',
      'Fix: Write it like {"0": 1.0, "1": 2.0}.']),
    ("result", example("result", workers=[without(WORKER, "pid")]),
     ['`workers[0]` of result.json must have the member "pid".', 'Fix: Add "pid": 4711.']),
    ("training", example("training", history={"loss": [0.5, "much"]}),
     ['`history.loss[1]` of training.json must be a number, or "nan",', 'Received: "much"',
      "Fix: Write it like 0.5."]),
    ("event", {"event": "party", "time": 5},
     ['`event` of an event must be the kind of the event: "started", "ready",', 'Received: "party"']),
    ("event", {"event": "done", "time": 5},
     ['`an event` must have the member "seconds".', 'Received: {"event": "done", "time": 5}',
      'Fix: Add "seconds": 1.5.']),
    ("checkpoint", example("checkpoint", position=[1]),
     ["`position` of the description of a checkpoint must be a list of the", "Received: [1]",
      "Fix: Write it like [1, 0]."]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "document", "said"), REFUSED)
def test_refused(name: str, document: Any, said: list[str]) -> None:
    assert_says(refusal(ArgumentError, read, name, document), said)
    assert_says(refusal(ArgumentError, lambda: validate(name, normalise(name, document))), said)


def test_a_long_document_is_shown_in_part() -> None:
    document = without(example("job"), "schema")
    received = f"Received: {json.dumps(document)[:197]}..."
    assert received in refusal(ArgumentError, read, "job", document)


@pytest.mark.parametrize(
    ("text", "reason", "received"),
    [
        ('{"schema": ', "Expecting value: line 1 column 12 (char 11)", '"{\\"schema\\": "'),
        ('{"time": NaN}', "NaN is written as text", '"{\\"time\\": NaN}"'),
        (b"\xff", "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte", '"\\\\xff"'),
    ],
)
def test_text_that_is_not_json(text: str | bytes, reason: str, received: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        read("run", text)
    assert caught.value.message == f"`run.json` must be valid JSON: {reason}."
    assert caught.value.received == received


def test_a_document_that_there_is_not() -> None:
    with pytest.raises(ArgumentError, match='The name of a document must be one of "tf_config", "job",'):
        read("letter", {})


def test_a_run_of_another_version_is_not_resumed(tmp_path: Path) -> None:
    def fit(**arguments: Any) -> tfdistr.FitResult:
        return tfdistr.distributed_fit(
            model, np.ones((2, 1)), np.ones(2), batch_size=2, run_dir=tmp_path / "run", checkpoint_every=1,
            verbose=0, **arguments,
        )  # fmt: skip

    def model() -> Any:
        import keras

        made = keras.Sequential([keras.layers.Dense(1)])
        made.compile("sgd", "mse")
        return made

    fit()
    file = tmp_path / "run" / "run.json"
    file.write_text(file.read_text().replace("urn:tfdistr:run:1", "urn:tfdistr:run:9"))
    with pytest.raises(ArgumentError) as caught:
        fit(epochs=2, resume=True)
    assert caught.value.received == '"urn:tfdistr:run:9"'
