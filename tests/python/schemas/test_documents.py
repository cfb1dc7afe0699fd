"""Every document of real jobs is valid, and the schemas describe all of its members."""

import json
import math
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import tfdistr
from tfdistr.jobs.caller import Caller
from tfdistr.jobs.result_files import load_training, save_training
from tfdistr.jobs.run import run_fit
from tfdistr.rendezvous.config import tf_config
from tfdistr.schemas import NAMES, load_schema, normalise, read, schema_id, validate
from tfdistr.schemas.normal_form import as_json
from tfdistr.training.trained_model import Training

rng = np.random.default_rng(0)
X = rng.normal(size=(40, 3)).astype("float32")
Y = (X[:, :1] > 0).astype("float32")
SECRET = "c0ffee-token"


def model() -> keras.Model:
    made = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, "sigmoid")])
    made.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    return made


def diverges() -> keras.Model:
    made = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    made.compile(keras.optimizers.SGD(1e30), "mse")
    return made


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[tfdistr.FitResult, Path, list[dict[str, Any]]]:
    """A job on two workers with checkpoints and validation: its result, its folder, and its events."""
    folder = tmp_path_factory.mktemp("job") / "run"
    events: list[dict[str, Any]] = []
    arguments = {
        "y": None, "sample_weight": None, "virtual_workers": None, "batch_size": 8, "epochs": 2, "seed": 1,
        "validation_data": (X, Y), "validation_freq": [2], "class_weight": {0: 1.0, 1: 2.0},
        "callbacks": [tfdistr.in_session(print)],
    }  # fmt: skip
    fit = run_fit(
        Caller(events.append), model=model, x=X, cluster=tfdistr.local_cluster(2, env={"TOKEN": SECRET}),
        strategy="multi_worker_mirrored", run_dir=folder, checkpoint_every="epoch", keep_checkpoints=2,
        resume=False, failures=tfdistr.on_failure(), **arguments | {"y": Y},
    )  # fmt: skip
    return fit, folder, events


def events_in(folder: Path) -> list[Any]:
    lines = [line for path in folder.glob("workers/*/events.jsonl") for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines]


def checkpoints_in(folder: Path) -> list[Any]:
    files = sorted((folder / "checkpoints").glob("*.checkpoint"))
    return [json.loads(path.read_bytes().split(b"\n", 2)[1]) for path in files]


def described(schema: Any, document: Any, root: Any) -> set[str]:
    """The members of a document that its schema does not describe."""
    missing: set[str] = set()
    if "$ref" in schema:
        missing = described(root["$defs"][schema["$ref"].split("/")[-1]], document, root)
    parts = [part["then"] for part in schema.get("allOf", ()) if _applies(part["if"], document)]
    for part in parts:
        missing = described(part, document, root)
    if isinstance(document, list) and "items" in schema:
        return set().union(*(described(schema["items"], item, root) for item in document))
    if isinstance(document, dict):
        known = schema.get("properties", {})
        others = schema.get("additionalProperties")
        names = set(document) - set(known) if others is None else set()
        missing = missing & names if "$ref" in schema or parts else names
        for name, value in document.items():
            if name in known or others is not None:
                missing |= {f"{name}.{more}" for more in described(known.get(name, others), value, root)}
    return missing


def _applies(condition: Any, document: Any) -> bool:
    return condition["properties"]["event"]["const"] == document["event"]


def check(name: str, document: Any) -> None:
    validate(name, document)
    assert as_json(normalise(name, document)) == document  # it is in its normal form
    schema = load_schema(name)
    assert described(schema, document, schema) == set()


def test_the_documents_of_a_job_with_two_workers(job) -> None:
    fit, folder, _ = job
    for name in ("job", "run", "training", "result"):
        path = folder / f"{name}.json"
        check(name, json.loads(path.read_text()))
        assert path.stat().st_mode & 0o077 == 0
    assert read("result", (folder / "result.json").read_bytes()) == fit.to_dict()
    assert read("training", (folder / "training.json").read_bytes())["history"] == fit.history


def test_its_events(job) -> None:
    _, folder, received = job
    written = events_in(folder)
    kinds = {event["event"] for event in written}
    of_start, of_epoch = {"started", "ready", "train_begin"}, {"epoch_begin", "epoch_end", "in_session"}
    assert kinds >= of_start | of_epoch | {"checkpoint", "done"}
    for event in [*written, *received]:
        check("event", event)


def test_its_checkpoints(job) -> None:
    _, folder, _ = job
    found = checkpoints_in(folder)
    assert [header["position"] for header in found] == [[1, 0], [2, 0]]
    for header in found:
        check("checkpoint", header)
        assert header["job"] == json.loads((folder / "run.json").read_text())["id"]
    first = next((folder / "checkpoints").glob("*.checkpoint")).read_bytes().split(b"\n", 1)[0].decode()
    assert schema_id("checkpoint").split(":")[-1] == first.removeprefix("tfdistr checkpoint ")


def test_its_trace(job) -> None:
    _, folder, _ = job
    lines = [json.loads(line) for line in (folder / "trace.jsonl").read_text().splitlines()]
    assert [line.get("step") for line in lines] == [None, *range(1, 11)]
    for line in lines:
        check("trace", line)


def test_job_json_says_what_the_job_is(job) -> None:
    fit, folder, _ = job
    text = (folder / "job.json").read_text()
    written = json.loads(text)
    assert SECRET not in text
    assert written["workers"] == 2
    assert (written["data"], written["validation"]) == (40, 40)
    arguments = written["arguments"]
    assert (arguments["batch_size"], arguments["epochs"], arguments["seed"]) == (8, 2, 1)
    assert arguments["class_weight"] == {"0": 1.0, "1": 2.0}
    assert arguments["validation_freq"] == {"epochs": [2]}
    assert written["versions"]["keras"] == keras.__version__
    assert written["versions"]["tfdistr"] == tfdistr.__version__
    assert written["schemas"] == {name: schema_id(name) for name in ("event", "checkpoint", "trace")}
    assert fit.params["validation_freq"] == (2,)


def test_tf_config_of_all_tasks() -> None:
    for config in tf_config(worker=["a:1", "b:1"], ps="c:1", chief="d:1"):  # type: ignore[union-attr]
        document = json.loads(config.to_json())
        validate("tf_config", document)
        assert normalise("tf_config", document) == document


def test_a_run_in_this_process_has_job_json_too(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    fit = tfdistr.distributed_fit(
        model, X, Y, batch_size=8, seed=1, run_dir=run_dir, checkpoint_every=2, verbose=0
    )
    for name in ("job", "run"):
        check(name, json.loads((run_dir / f"{name}.json").read_text()))
    for header in checkpoints_in(run_dir):
        check("checkpoint", header)
    check("result", fit.to_dict())
    assert fit.to_dict()["run_dir"] is None


def test_numbers_that_are_not_finite_are_json_and_come_back(tmp_path: Path) -> None:
    history = {"loss": [0.5, math.nan, math.inf, -math.inf]}
    tmp_path.chmod(0o700)
    save_training(Training(history=history, seconds=1.0, communication="mpi"), tmp_path)
    written = json.loads((tmp_path / "training.json").read_text())
    validate("training", written)
    assert written["history"] == {"loss": [0.5, "nan", "inf", "-inf"]}
    assert str(load_training(tmp_path)["history"]) == str(history)

    fit = tfdistr.distributed_fit(diverges, X, Y, epochs=3, batch_size=8, seed=1, verbose=0)
    assert not math.isfinite(fit.history["loss"][-1])
    document = fit.to_dict()
    check("result", document)
    assert str(read("result", json.dumps(document))["history"]) == str(fit.history)


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_are_valid(name: str) -> None:
    schema = load_schema(name)
    for example in schema["examples"]:
        check(name, example) if name != "tf_config" else validate(name, example)
