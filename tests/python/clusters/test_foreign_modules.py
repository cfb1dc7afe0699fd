"""The working directory may belong to others: its modules do not run, and those of the script do.

Workers start without a warning that the user could turn into an error.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from clusters import NO_GPU
from slow import mostly_slow

pytestmark = pytest.mark.timeout(240)

SCRIPT = """
import tfdistr
from beside import model

if __name__ == "__main__":
    for warm in (True, False):
        fit = tfdistr.distributed_fit(
            model, tfdistr.load_dataset("digits"), batch_size=256, verbose=0, **{options},
            cluster=tfdistr.local_cluster(2, warm=warm, {cluster}),
        )
        print("trained", fit.params["workers"], flush=True)
"""
MODEL = """
import keras

import constants


def model():
    model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(constants.CLASSES)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model
"""
#: Modules that are imported by the interpreter, by TensorFlow or by tfdistr, each as late as its importer.
FOREIGN = ("json", "runpy", "attrs", "mpi4py", "cloudpickle", "constants", "yaml")


# Slow: starts eight processes.
@pytest.mark.parametrize(
    ("options", "cluster"),
    mostly_slow([("{}", ""), ('{"strategy": "parameter_server"}', "ps=1")], quick=[("{}", "")]),
    ids=["workers", "servers"],
)
def test_modules_of_the_working_directory_do_not_run(tmp_path: Path, options: str, cluster: str) -> None:
    place, script = tmp_path / "place", tmp_path / "scripts" / "train.py"
    for folder in (place, script.parent):
        folder.mkdir()
    for name in FOREIGN:
        (place / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write({name!r})\n")
    script.write_text(SCRIPT.format(options=options, cluster=cluster))
    script.with_name("beside.py").write_text(MODEL)
    script.with_name("constants.py").write_text("CLASSES = 10\n")
    ended = subprocess.run(
        [sys.executable, str(script)], cwd=place, env=os.environ | NO_GPU | {"PYTHONWARNINGS": "error"},
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert ended.stdout.count("trained 2") == 2, ended.stdout + ended.stderr
    assert "cold" not in ended.stderr
    assert not (tmp_path / "ran").exists()
