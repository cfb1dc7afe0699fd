"""Two jobs in one run directory: the second is refused, and the first ends as if nothing had happened."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tfdistr
from tfdistr.checkpoint.lock import LOCK
from tfdistr.errors import ArgumentError

pytestmark = pytest.mark.timeout(240)

JOB = """
import os, sys, time
import numpy as np, keras, tfdistr
from keras.callbacks import LambdaCallback
run_dir, go = sys.argv[1:]

def model():
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model

def wait(epoch, logs):
    if epoch == 2:
        print("at epoch 3", flush=True)
        until = time.monotonic() + 120
        while not os.path.exists(go) and time.monotonic() < until:
            time.sleep(0.05)

if __name__ == "__main__":
    x = np.random.default_rng(1).normal(size=(64, 4)).astype("float32")
    fit = tfdistr.distributed_fit(
        model, x=x, y=x.sum(1), batch_size=16, epochs=4, seed=1, verbose=0, resume=True,
        callbacks=[LambdaCallback(on_epoch_begin=wait)], run_dir=run_dir, checkpoint_every="epoch",
    )
"""


@contextlib.contextmanager
def job(run_dir: Path, go: Path) -> Iterator[subprocess.Popen[str]]:
    """The first job, when it is at epoch 3: it has written a checkpoint before that."""
    script = run_dir.with_name("job.py")
    script.write_text(JOB)
    process = subprocess.Popen(
        [sys.executable, script, run_dir, go], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert process.stdout is not None
        assert any("at epoch 3" in line for line in process.stdout)
        yield process
    finally:
        process.kill()
        process.communicate()


def second(run_dir: Path, *, resume: bool) -> None:
    """The second job; it must be refused before it needs a model."""
    import numpy as np

    tfdistr.distributed_fit(
        lambda: None, x=np.zeros((4, 4)), y=np.zeros(4), cluster=tfdistr.local_cluster(2), resume=resume,
        run_dir=run_dir, checkpoint_every="epoch",
    )  # fmt: skip


def test_the_second_job_is_refused_and_the_first_goes_on(tmp_path):
    run_dir, go = tmp_path / "run", tmp_path / "go"
    with job(run_dir, go) as first:
        before = sorted(run_dir.rglob("*"))
        for resume in (True, False):
            with pytest.raises(ArgumentError, match="Only one job at a time") as caught:
                second(run_dir, resume=resume)
            assert f"(process {first.pid} on " in caught.value.received
        assert sorted(run_dir.rglob("*")) == before
        go.touch()
        output, _ = first.communicate(timeout=200)
        assert first.returncode == 0, output
    assert not (run_dir / LOCK).exists()
    with pytest.raises(ArgumentError, match="must be a new or empty folder"):
        second(run_dir, resume=False)
