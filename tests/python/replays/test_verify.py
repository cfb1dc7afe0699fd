"""A run that is trained again in parts: what agrees, what was changed, and what is refused."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import keras
import pytest
import tensorflow as tf
from forged import files, flipped, forge
from resumed import X, Y, model, plain, script_in, train
from slow import mostly_slow
from stores import memory

import tfdistr
from tfdistr.checkpoint.folder import read
from tfdistr.checkpoint.object_store import Store
from tfdistr.checkpoint.stored_checkpoints import StoredCheckpoints
from tfdistr.checkpoint.trace import TRACE
from tfdistr.cli import main as command
from tfdistr.errors import ArgumentError
from tfdistr.replays.values_for_r import verify_for_r


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 36 steps, of which all three checkpoints are kept."""
    folder = tmp_path_factory.mktemp("verified") / "run"
    train(folder, plain, epochs=3, keep_checkpoints=5)
    return folder


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    """A copy, which a test may change."""
    return Path(copytree(whole, tmp_path / "run"))


def id_of(run: Path) -> Any:
    return json.loads((run / "run.json").read_text())["id"]


def spans(found: tfdistr.Verification) -> list[tuple[int, int]]:
    return [(each.first_step, each.last_step) for each in found.intervals]


def test_a_run_agrees_with_its_training(run: Path) -> None:
    found = tfdistr.verify(run, plain, X, Y)
    assert found.agrees
    assert (found.chain, found.checkpoints, found.tolerance) == ([], [12, 24, 36], 0.0)
    assert spans(found) == [(1, 12), (13, 24), (25, 36)]
    made = [(each.recomputed, each.agrees, each.difference, each.step) for each in found.intervals]
    assert made == [(True, True, 0.0, None)] * 3
    lines = str(found).splitlines()
    assert lines[0] == f"{run} agrees with its training: 3 of 3 intervals recomputed (tolerance 0)."
    assert lines[1:4] == ["  steps 1 to 12 agree", "  steps 13 to 24 agree", "  steps 25 to 36 agree"]
    assert "no proof against somebody who owns all files" in lines[-1]


def test_a_share_of_the_intervals_has_the_last_one(run: Path) -> None:
    made = [
        [each.recomputed for each in tfdistr.verify(run, plain, X, Y, share=share, seed=2).intervals]
        for share in (0.01, 0.6, 0.6)
    ]
    assert made[0] == [False, False, True]
    assert made[1] == made[2]
    assert (sum(made[1]), made[1][2]) == (2, True)


# The last one is in the state of the random numbers.
@pytest.mark.parametrize(("number", "byte", "bit"), [(0, 5, 1), (2, 5, 1), (1, 260, 1)])
def test_a_flipped_bit_with_a_checksum_that_is_right(number: int, byte: int, bit: int, run: Path) -> None:
    forge(files(run)[number], arrays=flipped(byte, bit))
    found = tfdistr.verify(run, plain, X, Y)
    assert not found.agrees
    assert found.intervals[number].step == 12 * (number + 1)
    follows = [f"the checkpoint after step {12 * (number + 2)} has another hash of the one after step"]
    assert [text[: len(follows[0])] for text in found.chain] == (follows if number < 2 else [])
    assert f"steps {12 * number + 1} to {12 * number + 12} differ, first in step" in str(found)


def test_the_sign_of_a_zero(tmp_path: Path) -> None:
    def frozen() -> keras.Model:
        made = plain()
        made.layers[0].trainable = False
        return made

    train(tmp_path / "run", frozen, epochs=1)
    (path,) = files(tmp_path / "run")
    assert read(path).arrays["1"][0] == 0  # a bias, after 32 numbers: its sign is in its last byte
    forge(path, arrays=flipped(4 * 32 + 3, 128))
    (interval,) = tfdistr.verify(tmp_path / "run", frozen, X, Y).intervals
    assert (interval.agrees, interval.step) == (False, 12)
    assert 0 < interval.difference < 1e-300


def test_a_file_that_is_torn(run: Path) -> None:
    path = files(run)[1]
    path.write_bytes(path.read_bytes()[:-1])
    found = tfdistr.verify(run, plain, X, Y)
    assert [text.partition(": ")[2] for text in found.chain] == [
        "it is torn: its checksum is not that of its content"
    ]
    assert spans(found) == [(1, 12), (13, 36)]
    assert all(each.agrees for each in found.intervals)
    assert not found.agrees


def test_the_checkpoint_of_another_step(run: Path) -> None:
    first, second, _ = files(run)
    first.write_bytes(second.read_bytes())
    (text,) = tfdistr.verify(run, plain, X, Y, share=0.1).chain
    assert text.endswith("it is the checkpoint at epoch 3, step 0, not at epoch 2, step 0")
    forge(first, lambda header: header.update(position=[1, 0], total=12))
    found = tfdistr.verify(run, plain, X, Y, share=0.1)
    assert found.chain == ["the checkpoint after step 24 does not come after the one after step 12"]
    assert spans(found) == [(13, 24), (25, 36)]


def test_the_checkpoint_of_another_run(run: Path, tmp_path: Path) -> None:
    train(tmp_path / "other", plain, epochs=2, seed=2)
    files(run)[1].write_bytes(files(tmp_path / "other")[1].read_bytes())
    (text,) = tfdistr.verify(run, plain, X, Y, share=0.1).chain
    assert text.endswith("it is of another run")
    forge(files(run)[1], lambda header: header.update(job=id_of(run)))
    found = tfdistr.verify(run, plain, X, Y)
    assert [each.agrees for each in found.intervals] == [True, False, False]
    assert len([text for text in found.chain if "step 24" in text]) >= 3


@pytest.mark.parametrize("total", [35, 37])
def test_a_number_of_steps_that_is_not_that_of_the_position(total: int, run: Path) -> None:
    forge(files(run)[2], lambda header: header.update(total=total))
    found = tfdistr.verify(run, plain, X, Y, share=0.1)
    assert (found.chain, found.intervals[2].agrees) == ([], False)
    assert found.intervals[2].step >= 35


def test_the_checkpoint_of_another_model(run: Path, tmp_path: Path) -> None:
    train(tmp_path / "other", model, epochs=2)
    files(run)[1].write_bytes(files(tmp_path / "other")[1].read_bytes())
    forge(files(run)[1], lambda header: (header.update(job=id_of(run)), header["notes"].pop("model")))
    found = tfdistr.verify(run, plain, X, Y)
    assert [(each.agrees, each.difference) for each in found.intervals[1:]] == [(False, math.inf)] * 2


def test_weights_from_elsewhere(tmp_path: Path) -> None:
    """The run begins with other weights than those of its model and seed, which no hash shows."""

    def trained() -> keras.Model:
        made = plain()
        made.set_weights([value + 0.01 for value in made.get_weights()])
        return made

    train(tmp_path / "run", trained, epochs=2)
    found = tfdistr.verify(tmp_path / "run", plain, X, Y)
    assert found.chain == []
    assert [(each.agrees, each.step) for each in found.intervals] == [(False, 1), (True, None)]


def test_other_data_and_another_model_are_findings(run: Path) -> None:
    x = X.copy()
    x[20, 1] += 0.5
    found = tfdistr.verify(run, plain, x, Y)
    assert not found.agrees
    shown = [(each.recomputed, each.agrees, each.step) for each in found.intervals]
    assert shown == [(False, False, step) for step in (1, 13, 25)]
    assert "arrays with the digest" in found.intervals[0].reason
    assert "steps 1 to 12 cannot be those of the run: The data of a replay must be" in str(found)
    found = tfdistr.verify(run, model, X, Y)
    assert [each.agrees for each in found.intervals] == [False] * 3
    assert "The model of a replay must be" in found.intervals[1].reason


def test_data_that_has_no_digest(tmp_path: Path) -> None:
    def data(x: Any) -> Any:
        return lambda: tf.data.Dataset.from_tensor_slices((x, Y)).batch(8)

    train(tmp_path / "run", plain, data(X), None, batch_size=None, epochs=2)
    assert tfdistr.verify(tmp_path / "run", plain, data(X), share=0.1).agrees
    x = X.copy()
    x[20, 1] += 0.5
    found = tfdistr.verify(tmp_path / "run", plain, data(x))
    assert [(each.agrees, each.step) for each in found.intervals] == [(False, 3), (False, 15)]


def of_step(number: int, change: Callable[[str], str]) -> Callable[[list[str]], list[str]]:
    def changed(lines: list[str]) -> list[str]:
        return [change(line) if f'"step": {number},' in line else line for line in lines]

    return changed


@pytest.mark.parametrize(
    "change",
    [of_step(17, lambda line: line.replace('"loss": 0', '"loss": 1')), of_step(17, lambda line: line[:-9]),
     lambda lines: [line for line in lines if '"step": 17,' not in line]],
    ids=["changed", "damaged", "gone"],
)  # fmt: skip
def test_a_record_of_the_trace(change: Any, run: Path) -> None:
    lines = (run / TRACE).read_text().splitlines()
    (run / TRACE).write_text("\n".join(change(lines)) + "\n")
    found = tfdistr.verify(run, plain, X, Y)
    after = [f"{TRACE} was changed after the checkpoint after step {step} was written" for step in (24, 36)]
    assert found.chain == after
    assert [each.step for each in found.intervals] == [None, 17, None]


def test_a_changed_description_of_the_job(run: Path) -> None:
    document = json.loads((run / "run.json").read_text())
    document["job"]["shuffle"] = False
    (run / "run.json").write_text(json.dumps(document))
    found = tfdistr.verify(run, plain, X, Y, share=0.1)
    assert found.chain[0] == "the checkpoint after step 12 was written with another run.json"
    assert [each.agrees for each in found.intervals] == [None, None, False]


def test_a_resumed_run_continues_its_chain(tmp_path: Path) -> None:
    train(tmp_path / "run", plain, epochs=2, keep_checkpoints=5)
    with (tmp_path / "run" / TRACE).open("a") as file:  # by a process that was killed
        file.write('{"step": 25, "epo')
    train(tmp_path / "run", plain, epochs=4, keep_checkpoints=5, resume=True)
    found = tfdistr.verify(tmp_path / "run", plain, X, Y)
    assert found.agrees
    assert spans(found) == [(1, 12), (13, 24), (25, 36), (37, 48)]
    links = [read(path).notes["chain"] for path in files(tmp_path / "run")]
    assert [link["number"] for link in links] == [1, 2, 3, 4]


def test_checkpoints_that_were_removed_do_not_break_the_chain(tmp_path: Path) -> None:
    train(tmp_path / "run", plain)
    found = tfdistr.verify(tmp_path / "run", plain, X, Y)
    assert found.agrees
    assert (found.checkpoints, spans(found)) == ([36, 48], [(37, 48)])
    assert "steps 1 to 36 have no checkpoints to compare" in str(found)
    files(tmp_path / "run")[0].unlink()
    with pytest.raises(
        ArgumentError, match=r"two of its checkpoints are kept(?s:.*)with 1\n.*keep_checkpoints"
    ):
        tfdistr.verify(tmp_path / "run", plain, X, Y)
    path = files(tmp_path / "run")[0]
    path.write_bytes(path.read_bytes()[:-1])
    found = tfdistr.verify(tmp_path / "run", plain, X, Y)
    assert (found.agrees, found.intervals, len(found.chain)) == (False, [], 1)
    assert "steps 1 to 48 have no checkpoints to compare" in str(found)


def test_a_checkpoint_without_a_chain(run: Path) -> None:
    for path in files(run):
        forge(path, lambda header: header["notes"].pop("chain"))
    found = tfdistr.verify(run, plain, X, Y, share=0.1)
    assert found.chain[0] == "the checkpoint after step 12 has no hashes of what was before it"
    assert spans(found) == [(13, 24), (25, 36)]


class Halves(keras.callbacks.Callback):
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.model.optimizer.learning_rate.assign(float(self.model.optimizer.learning_rate) / 2)


def compiled(**given: Any) -> Any:
    def make() -> keras.Model:
        made = plain()
        made.compile(keras.optimizers.Adam(0.01), made.loss, metrics=["accuracy"], **given)
        return made

    return make


KINDS = [
    (model, {"validation_data": (X[:20], Y[:20]), "checkpoint_every": 15}),
    (compiled(), {"callbacks": lambda: [Halves()]}),
    (compiled(steps_per_execution=3), {"checkpoint_every": 7}),
    (model, {"initial_epoch": 1}),
    (model, {"steps_per_epoch": 7}),
    (model, {"virtual_workers": 2}),
    (
        model,
        {"callbacks": lambda: [keras.callbacks.EarlyStopping("loss", 10.0, 1, restore_best_weights=True)]},
    ),
]


# Slow: each kind trains, and trains again.
@pytest.mark.parametrize(("make", "given"), mostly_slow(KINDS, KINDS[:2]))
def test_trainings_of_all_kinds(
    make: Any, given: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "1")  # as in a new process, which has chosen one thread
    train(tmp_path / "run", make, **{"epochs": 3, "keep_checkpoints": 20, **given})
    again = {name: given[name] for name in ("validation_data", "callbacks") if name in given}
    found = tfdistr.verify(tmp_path / "run", make, X, Y, **again)
    assert (found.agrees, found.tolerance) == (True, 0.0), str(found)
    assert len(found.intervals) == len(files(tmp_path / "run"))


def test_two_workers_agree_up_to_rounding(tmp_path: Path) -> None:
    train(tmp_path / "run", plain, epochs=2, cluster=tfdistr.local_cluster(2))
    found = tfdistr.verify(tmp_path / "run", plain, X, Y)
    assert (found.agrees, found.tolerance) == (True, 0.001)
    assert max(each.difference for each in found.intervals) < 1e-5


def test_what_each_worker_has_of_its_own_is_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their averages of batch normalization, and their random numbers."""
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "1")  # as in a new process, which has chosen one thread
    with pytest.warns(tfdistr.TfdistrWarning, match="each worker normalizes"):
        train(tmp_path / "run", epochs=2, cluster=tfdistr.local_cluster(2))
    found = tfdistr.verify(tmp_path / "run", model, X, Y)
    assert found.agrees, str(found)


def test_a_run_in_a_store() -> None:
    with memory():
        train("memory://bucket/verified", plain, epochs=2)
        assert tfdistr.verify("memory://bucket/verified", plain, X, Y).agrees
        store = Store("memory://bucket/verified")
        name = max(name for name in store.names() if name.endswith(".checkpoint"))
        store.write(name, flipped(900)(store.read(name)))
        found = tfdistr.verify("memory://bucket/verified", plain, X, Y, share=0.1)
        assert not found.agrees
        assert "it was altered: its SHA-256 is not the one of its mark" in found.chain[0]


def test_a_store_has_the_trace_of_each_of_its_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    url, sizes, own = "memory://bucket/traced", list[tuple[int, int]](), StoredCheckpoints.save

    def save(stored: StoredCheckpoints, position: Any, file: Path) -> None:
        own(stored, position, file)  # a job that is killed now has uploaded no more
        sizes.append((read(file).notes["chain"]["trace"][0], len(Store(url).read(TRACE) or b"")))

    monkeypatch.setattr(StoredCheckpoints, "save", save)
    with memory():
        train(url, plain, epochs=1)
        train(url, plain, epochs=2, resume=True)
        assert tfdistr.verify(url, plain, X, Y).agrees
    assert len(sizes) >= 2
    assert all(0 < hashed <= there for hashed, there in sizes)


def test_a_tolerance(run: Path) -> None:
    forge(files(run)[2], arrays=flipped(1))  # a low bit of the first weight
    found = tfdistr.verify(run, plain, X, Y, share=0.1, tolerance=0.01)
    assert (found.agrees, found.tolerance) == (True, 0.01)
    assert 0 < found.intervals[2].difference < 0.01


def test_callbacks_of_the_run_are_needed(tmp_path: Path) -> None:
    train(tmp_path / "run", plain, epochs=2, callbacks=[Halves()])
    with pytest.raises(ArgumentError, match="callbacks of the run must be passed"):
        tfdistr.verify(tmp_path / "run", plain, X, Y, share=0.1)


def test_arguments_that_are_refused(run: Path, tmp_path: Path) -> None:
    shares = [("share", value) for value in (0, -1, 1.5, True, "all", None, math.nan)]
    for name, value in (*shares, ("seed", -1), ("tolerance", 1.0)):
        with pytest.raises(ArgumentError, match=f"`{name}` must be"):
            tfdistr.verify(run, plain, X, Y, **{name: value})
    with pytest.raises(ArgumentError, match="folder or the URL of a run"):
        tfdistr.verify(tmp_path, plain, X, Y)


def test_the_columns_for_r(run: Path) -> None:
    seeds: list[int] = []
    given = dict.fromkeys(("sample_weight", "validation_data", "callbacks", "tolerance"))
    found = verify_for_r(run, plain, seeds.append, x=X, y=Y, share=0.5, seed=1.0, **given)
    assert found["agrees"] is True
    assert sum(found["intervals"]["recomputed"]) == 2
    assert seeds == [1, 1]
    assert found["text"][0].startswith(str(run))


def test_the_command(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = script_in(tmp_path, "plain")
    asked = ["verify", str(run), str(script), "--share", "0.1", "--seed", "1"]
    assert command.run(asked) == 0
    assert "1 of 3 intervals recomputed" in capsys.readouterr().out
    forge(files(run)[2], arrays=flipped(5))
    assert command.run(asked) == 1
    assert "does not agree" in capsys.readouterr().out
    assert command.run([*asked[:-1], "-1"]) == 2
    assert "`seed` must be" in capsys.readouterr().err
