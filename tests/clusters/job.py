"""The job that every cluster runs: python job.py CLUSTER WHAT FOLDER.

CLUSTER is an expression of Python, "None" for a script that a command starts as its workers. WHAT is "train",
"error" (in the model), "kill" (of worker 1), "restart" (after that; the run is in the store $STORE, if set)
or "wait" (until somebody ends it). $COMMUNICATION, if set, carries the gradients.
"""

import json
import os
import sys
from pathlib import Path

import tfdistr

CLUSTER, WHAT, FOLDER = sys.argv[1], sys.argv[2], Path(sys.argv[3])


def model(what: str = WHAT):
    import keras

    import tfdistr

    print("the model of worker", tfdistr.worker_index(), flush=True)
    if what == "error":
        raise ValueError("this model has no layers")
    made = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(10, "softmax")])
    made.compile(keras.optimizers.SGD(0.001, momentum=0.9), "sparse_categorical_crossentropy")
    return made


def callbacks(what: str = WHAT, folder: Path = FOLDER) -> list:
    import os
    import signal

    import keras

    import tfdistr

    def begin(epoch: int, logs: object) -> None:
        index = tfdistr.worker_index()
        (folder / f"began-{index}").write_text(f"{os.getpid()}\n")
        first = not (folder / "killed").exists()
        if index == 1 and epoch == 2 and first and what in ("kill", "restart"):
            (folder / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)

    return [keras.callbacks.LambdaCallback(on_epoch_begin=begin)]


if __name__ == "__main__":
    cluster = eval(CLUSTER)
    options = {"cluster": cluster, "run_dir": str(FOLDER / "run")} if cluster else {}
    communication = os.environ.get("COMMUNICATION", "auto")
    options["strategy"] = tfdistr.multi_worker_mirrored(communication=communication)
    if WHAT == "restart":
        folder = str(FOLDER / ("run" if cluster else "checkpoints"))
        run_dir = os.environ.get("STORE", folder)
        options |= {"run_dir": run_dir, "checkpoint_every": "epoch", "resume": True}
        options |= {"failures": tfdistr.on_failure(max_restarts=1)} if cluster else {}
    fit = tfdistr.distributed_fit(
        model, tfdistr.load_dataset("digits", "test"), batch_size=72, seed=1, verbose=0, callbacks=callbacks,
        epochs=100_000 if WHAT == "wait" else 4, **options,
    )  # fmt: skip
    if tfdistr.is_chief():
        found = {
            # Not `fit.model`: the caller would import TensorFlow for it.
            "weights": [weight.ravel().tolist() for weight in fit._trained.state().weights],
            "history": fit.history,
            "workers": fit.params["workers"],
            "hosts": [worker["host"] for worker in fit.workers],
        }
        (FOLDER / "result.json").write_text(json.dumps(found))
