"""Scripts that train by Slurm: the numbers are those of one process, also after the job was queued again."""

import json
import re
import subprocess
import sys
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

DOCS = Path(__file__).parents[3] / "docs" / "engines" / "slurm.md"
#: The model and the call of all scripts here.
SCRIPT = """
import json, sys
import numpy as np
import tfdistr

def model():
    import keras
    made = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(10, "softmax")])
    made.compile(keras.optimizers.SGD(0.001, momentum=0.9), "sparse_categorical_crossentropy")
    return made

if __name__ == "__main__":
    options = eval(sys.argv[2])
    fit = tfdistr.distributed_fit(
        model, tfdistr.load_dataset("digits"), batch_size=64, steps_per_epoch=22, epochs=2, seed=1, verbose=0,
        **options,
    )
    if tfdistr.is_chief():
        # Not `fit.model`: a caller would import TensorFlow for it.
        weights = [weight.tolist() for weight in fit._trained.state().weights]
        with open(sys.argv[1], "w") as file:
            hosts = [worker["host"] for worker in fit.workers]
            json.dump({"weights": weights, "loss": fit.history["loss"], "hosts": hosts,
                       "communication": fit.params["communication"], "workers": fit.params["workers"]}, file)
"""


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one process gives."""
    return run(tmp_path_factory.mktemp("one"))


def run(folder: Path, *before: str, options: str = "{}") -> dict[str, Any]:
    """Run the script after the words ``before``, and return what it wrote."""
    script, result = folder / "train.py", folder / "result.json"
    script.write_text(SCRIPT)
    ended = subprocess.run(
        [*before, sys.executable, str(script), str(result), options],
        capture_output=True, text=True, timeout=400, cwd=folder,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "slurmstepd" not in ended.stderr
    found: dict[str, Any] = json.loads(result.read_text())
    return found


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    np.testing.assert_allclose(found["loss"], expected["loss"], rtol=1e-6)
    for one, other in zip(found["weights"], expected["weights"], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_tasks_of_srun_train_together(lab: slurm_lab.Lab, tmp_path: Path, expected: dict[str, Any]) -> None:
    """They are more than the nodes, and their ranks are not in the order of the nodes."""
    found = run(tmp_path, "srun", "-N2", "-n3", "-m", "cyclic")
    assert (found["workers"], found["communication"]) == (3, "mpi")
    assert_same(found, expected)


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
