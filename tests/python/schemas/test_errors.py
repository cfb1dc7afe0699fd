"""Documents that are refused: each message has the rule, what was received, and the fix."""

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfdistr
from tfdistr.errors import ArgumentError
from tfdistr.schemas import load_schema, normalise, read, validate


def example(name: str, **changes: Any) -> dict[str, Any]:
    document: dict[str, Any] = copy.deepcopy(load_schema(name)["examples"][0])
    return {**document, **changes}


def without(document: dict[str, Any], member: str) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name != member}


WORKER = load_schema("result")["examples"][0]["workers"][0]
REFUSED = {
    "another version": (
        "result",
        example("result", schema="urn:tfdistr:result:2"),
        '`schema` of result.json must be the version of this document, "urn:tfdistr:result:1".',
        '"urn:tfdistr:result:2"',
        "Read it with the version of tfdistr that wrote it.",
    ),
    "no version": (
        "run",
        without(example("run"), "schema"),
        '`run.json` must have the member "schema".',
        json.dumps(without(example("run"), "schema")),
        'Add "schema": "urn:tfdistr:run:1".',
    ),
    "no document": (
        "job",
        [1, 2],
        '`job.json` must be a JSON object with the members "schema", "schemas", "time", "versions", "task", '
        '"workers", "data", "validation" and "arguments".',
        "[1, 2]",
        f"Write it like {json.dumps(example('job'))}.",
    ),
    "an argument": (
        "job",
        example("job", arguments={**example("job")["arguments"], "epochs": 1.5}),
        "`arguments.epochs` of job.json must be the number of the epoch at which the training ends, "
        "1 or greater.",
        "1.5",
        "Write it like 2.",
    ),
    "the name of a class": (
        "run",
        example("run", job={**example("run")["job"], "class_weight": {"cat": 1.0}}),
        "`job.class_weight` of run.json must be an object whose names are numbers of classes.",
        '"cat"',
        'Write it like {"0": 1.0, "1": 2.0}.',
    ),
    "a member that a worker lacks": (
        "result",
        example("result", workers=[without(WORKER, "pid")]),
        '`workers[0]` of result.json must have the member "pid".',
        json.dumps(without(WORKER, "pid")),
        'Add "pid": 4711.',
    ),
    "a number as other text": (
        "training",
        example("training", history={"loss": [0.5, "much"]}),
        '`history.loss[1]` of training.json must be a number, or "nan", "inf" or "-inf", or a list of them '
        "where a metric has several values.",
        '"much"',
        "Write it like 0.5.",
    ),
    "an unknown event": (
        "event",
        {"event": "party", "time": 5},
        '`event` of an event must be the kind of the event: "started", "ready", "train_begin", '
        '"epoch_begin", "batch", "epoch_end", "in_session", "worker_steps", "checkpoint", "unsaved", '
        '"warning", "done", "stopped", "failed", "log", "restart" or "replaced".',
        '"party"',
        'Write it like "ready".',
    ),
    "a member that a kind of event has": (
        "event",
        {"event": "done", "time": 5},
        '`an event` must have the member "seconds".',
        '{"event": "done", "time": 5}',
        'Add "seconds": 1.5.',
    ),
    "a checkpoint's position": (
        "checkpoint",
        example("checkpoint", position=[1]),
        "`position` of the description of a checkpoint must be a list of the epoch, counted from 0, and "
        "the number of its steps that are done.",
        "[1]",
        "Write it like [1, 0].",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    name, document, message, received, fix = REFUSED[case]
    for refuse in (read, lambda name, document: validate(name, normalise(name, document))):
        with pytest.raises(ArgumentError) as caught:
            refuse(name, document)
        error = caught.value
        shown = received if len(received) <= 200 else received[:197] + "..."
        assert (error.message, error.received, error.fix) == (message, shown, fix)


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
    assert caught.value.fix == "Write the whole document again."


def test_a_document_that_there_is_not() -> None:
    with pytest.raises(ArgumentError) as caught:
        read("letter", {})
    assert caught.value.message == (
        'The name of a document must be one of "tf_config", "job", "run", "event", "checkpoint", "training", '
        '"result".'
    )
    assert (caught.value.received, caught.value.fix) == ("'letter'", 'Pass "result", for example.')


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
    assert (
        caught.value.message
        == '`schema` of run.json must be the version of this document, "urn:tfdistr:run:1".'
    )
    assert caught.value.received == '"urn:tfdistr:run:9"'
