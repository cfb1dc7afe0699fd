"""One model, written in R and in Python, trained from both languages: the same weights and history."""

import sys
from pathlib import Path

import bridge
import numpy as np
from digits_job import R_MODEL, TRAIN, model

import tfdistr

PYTHON = Path(__file__).with_name("digits_job.py")
FIT = """
fit <- distributed_fit({model}, py_to_r(x), py_to_r(y), cluster = {cluster}, epochs = 2, seed = 5)
"""


def in_python(build, workers):
    cluster = tfdistr.local_cluster(workers) if workers else None
    fit = tfdistr.distributed_fit(build, *TRAIN, cluster=cluster, epochs=2, seed=5)
    return fit.model.get_weights(), fit.history


def in_r(build, workers):
    cluster = f"local_cluster({workers})" if workers else "NULL"
    bridge.r(R_MODEL + FIT.format(model=build, cluster=cluster), x=TRAIN[0], y=TRAIN[1])
    return bridge.from_r("fit$model").get_weights(), bridge.from_r("fit$history")


def check(workers, folder):
    file = Path(folder, "model.R")
    file.write_text(f"library(reticulate)\n{R_MODEL}")
    weights, history = in_python(model, workers)
    others = {
        "r_function() from Python": in_python(tfdistr.r_function(file, "model"), workers),
        "R": in_r("model", workers),
        "python_function() from R": in_r(f"python_function('{PYTHON}', 'model')", workers),
    }
    for name, (other_weights, other_history) in others.items():
        for mine, theirs in zip(weights, other_weights, strict=True):
            assert np.array_equal(mine, theirs), (name, workers)
        assert history == other_history, (name, workers)


if __name__ == "__main__":
    for workers in (0, 2):
        check(workers, sys.argv[1])
    print("same functions")
