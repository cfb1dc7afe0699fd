"""The script of the documentation, by Slurm: the numbers of one process, also after it was queued again."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import slurm_lab
from launched import wait_for

import tfdistr

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.slow(reason="a real Slurm, whose tasks import TensorFlow"),
]

DOCS = Path(__file__).parents[3] / "docs" / "clusters" / "slurm.md"


def block(name: str) -> str:
    """A block of the documentation whose first lines have ``name``."""
    found = re.findall(r"```\w+\n(.*?)```", DOCS.read_text(), re.DOTALL)
    (one,) = [text for text in found if name in text]
    return str(one)


def test_the_script_of_the_documentation_goes_on_after_its_time_limit(
    lab: slurm_lab.Lab, tmp_path: Path
) -> None:
    script, train = block("--signal=B:TERM@60"), block("resume=True")
    # As it is, but shorter: 70 s of training, of which a run may have 60 s.
    sleep = "keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: __import__('time').sleep(5))"
    train, changed = re.subn(r"epochs=\d+", f"epochs=14, callbacks=lambda: [{sleep}]", train)
    assert changed == 1
    (tmp_path / "train.py").write_text(train)
    script, changed = re.subn(r"--time=\S+", "--time=2", script)
    assert changed == 1
    (tmp_path / "job.sh").write_text(script)
    number = lab.run("sbatch", "--parsable", f"--chdir={tmp_path}", f"{tmp_path}/job.sh").strip()
    output = tmp_path / f"slurm-{number}.out"
    assert wait_for(lambda: output.exists() and "14 epochs" in output.read_text(), 400), output.read_text()
    said = output.read_text()
    assert "The job was preempted (SIGTERM) and saved a checkpoint" in said
    restarts = lab.run("scontrol", "--oneliner", "show", "job", number)
    assert int(re.findall(r" Restarts=(\d+) ", restarts)[0]) >= 1
    digits = tfdistr.load_dataset("digits")
    one = tfdistr.distributed_fit(_model, digits, batch_size=64, epochs=14, seed=1, verbose=0)
    (loss,) = set(re.findall(r"last loss ([\d.]+)", said))
    np.testing.assert_allclose(float(loss), one.history["loss"][-1], rtol=1e-5)


def _model() -> Any:
    import keras

    made = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(10, "softmax")])
    made.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return made
