"""TensorBoard's hyperparameters and profiles on two workers, and its events when a worker is killed."""

import os
import signal
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tfdistr

pytestmark = [pytest.mark.timeout(240), pytest.mark.slow(reason="trains on two workers for each")]
EPOCHS, STEPS = 3, 23


@pytest.fixture
def train(tmp_path: Path) -> Callable[..., Any]:
    """Trains a small model on two workers, with these callbacks."""

    def train(callbacks: Callable[[], list[Any]], **options: Any) -> Any:
        def model() -> Any:
            import keras

            layers = [keras.layers.Flatten(), keras.layers.Dense(10, activation="softmax")]
            made = keras.Sequential([keras.layers.Rescaling(1 / 16), *layers])
            made.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
            return made

        digits = tfdistr.load_dataset("digits", "test")
        return tfdistr.distributed_fit(
            model, digits, validation_data=digits, cluster=tfdistr.local_cluster(2), epochs=EPOCHS, seed=1,
            batch_size=16, verbose=0, callbacks=callbacks, **options,
        )  # fmt: skip

    return train


def values(folder: Path) -> dict[str, dict[int, Any]]:
    """The values in the event files of a folder, by tag and step."""
    import tensorflow as tf

    found: dict[str, dict[int, Any]] = defaultdict(dict)
    for file in sorted(folder.glob("*tfevents*")):
        for record in tf.data.TFRecordDataset(str(file)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            for value in event.summary.value:
                found[value.tag][event.step] = value
    return found


def check(folder: Path, history: dict[str, list[float]]) -> None:
    """The events have the numbers of the history, epoch by epoch."""
    import tensorflow as tf

    for run, tag, name in (
        ("train", "epoch_loss", "loss"),
        ("train", "epoch_accuracy", "accuracy"),
        ("validation", "epoch_loss", "val_loss"),
        ("validation", "epoch_accuracy", "val_accuracy"),
    ):
        found = {step: float(tf.make_ndarray(v.tensor)) for step, v in values(folder / run)[tag].items()}
        assert found == pytest.approx(dict(enumerate(history[name])), rel=1e-6)


def steps_of_profile(file: Path) -> set[int]:
    """The numbers of the batches that a profile has."""
    from tensorflow.tsl.profiler.protobuf.xplane_pb2 import XSpace

    space = XSpace.FromString(file.read_bytes())
    found = set()
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                stats = {plane.stat_metadata[stat.metadata_id].name: stat for stat in event.stats}
                if plane.event_metadata[event.metadata_id].name == "Profiled batch":
                    found.add(stats["step_num"].int64_value)
    return found


def test_a_profile_of_the_chief(train, tmp_path):
    folder = str(tmp_path / "board")

    def callbacks():
        import keras

        return [keras.callbacks.TensorBoard(folder, profile_batch=(3, 5))]

    fit = train(callbacks)
    check(tmp_path / "board", fit.history)
    (profile,) = tmp_path.glob("board/train/plugins/profile/*/*.xplane.pb")
    assert steps_of_profile(profile) == {2, 3, 4}  # the third to the fifth batch


def test_a_restart_goes_on_in_the_same_run(train, tmp_path):
    folder, mark = str(tmp_path / "board"), str(tmp_path / "killed")

    def callbacks():
        import keras

        import tfdistr

        class Killed(keras.callbacks.Callback):
            done = 0

            def on_train_batch_begin(self, batch, logs=None):
                self.done += 1
                if self.done == 40 and tfdistr.worker_index() == 1 and not os.path.exists(mark):
                    Path(mark).touch()
                    os.kill(os.getpid(), signal.SIGKILL)

        # The profile begins before the last checkpoint, and would end after it.
        return [keras.callbacks.TensorBoard(folder, profile_batch=(30, 50)), Killed()]

    fit = train(
        callbacks, checkpoint_every=8, failures=tfdistr.on_failure(max_restarts=1), run_dir=tmp_path / "run"
    )
    assert Path(mark).exists()
    check(tmp_path / "board", fit.history)
