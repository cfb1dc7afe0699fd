"""A session of Python whose calls are interrupted: a line of JSON on standard input for each.

It prints "SESSION: " and how the call has ended, then what the next job came to.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

import numpy as np
import phases

import tfdistr

X, Y = np.ones((64, 4), "float32"), np.ones(64, "float32")
LONG = 10**6


def model() -> Any:
    import keras

    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made


def slow_model() -> Any:
    if phases.in_session():
        phases.reach()
    return model()


def compiling_model() -> Any:
    import keras

    made = keras.Sequential([phases.compiling(), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made


def call(phase: str, here: bool, run_dir: str) -> Any:
    """Make a call that reaches the phase, and is interrupted there."""
    wait = 0.0 if here else 60.0  # this process continues; a worker waits

    def fit(model: Any = model, x: Any = X, y: Any = Y, **options: Any) -> Any:
        given = {"cluster": None if here else tfdistr.local_cluster(2), "epochs": LONG, "verbose": 0}
        return tfdistr.distributed_fit(model, x, y, run_dir=run_dir, **given | options)

    cluster = None if here else tfdistr.local_cluster(2)
    match phase:
        case "data" if here:
            return fit(x=phases.examples, y=None)
        case "data":
            return fit(callbacks=[phases.Written()])
        case "cold start" | "meeting":
            return fit(cluster=tfdistr.local_cluster(2, warm=False))
        case "warm start":
            return fit()
        case "first step":
            return fit(compiling_model)
        case "epoch":
            return fit(callbacks=lambda: [phases.at("on_epoch_begin", wait)])
        case "callback":
            return fit(callbacks=lambda: [phases.at("on_epoch_begin", 60.0)])
        case "session":
            return fit(callbacks=[tfdistr.in_session(lambda epoch, logs: phases.reach())])
        case "validation":
            many = (np.ones((10**5, 4), "float32"), np.ones(10**5, "float32"))
            return fit(callbacks=lambda: [phases.OnTest(wait)], validation_data=many)
        case "checkpoint":
            return fit(checkpoint_every=1)
        case "result":
            return fit(slow_model, epochs=1).model
        case "evaluate":
            return trained(here).evaluate(phases.examples, cluster=cluster)
        case "predict":
            return trained(here).predict(lambda: phases.examples().map(lambda x, y: x), cluster=cluster)
        case "compare":
            callbacks = lambda: [phases.at("on_epoch_begin", 60.0)]  # noqa: E731
            return tfdistr.compare_strategies(model, X, Y, epochs=LONG, callbacks=callbacks)
    raise ValueError(phase)


_trained: list[Any] = []


def trained(here: bool) -> Any:
    """A result for the calls that need one."""
    if not _trained:
        _trained.append(quick(here))
    return _trained[0]


def quick(here: bool) -> Any:
    return tfdistr.distributed_fit(
        model, X, Y, cluster=None if here else tfdistr.local_cluster(2), epochs=2, verbose=0
    )


def say(text: str) -> None:
    print(f"SESSION: {text}", flush=True)


def main() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["phase"] in ("evaluate", "predict"):
            trained(asked["here"])
        try:
            phases.FOLDER.joinpath("begun").touch()
            call(asked["phase"], asked["here"], asked["run_dir"])
            say("returned")
        except KeyboardInterrupt as error:
            say(f"interrupt {type(error).__name__}")
        except Exception as error:
            say(f"error {type(error).__name__}: {error}".replace("\n", " | "))
        say(f"next {len(quick(asked['here']).history['loss'])}")


if __name__ == "__main__":
    Path(os.environ["PHASE_FOLDER"], "pid").write_text(str(os.getpid()))
    main()
