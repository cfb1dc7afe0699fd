"""``assert_same_fit()`` with real workers: what it returns, and what it says where results differ."""

import os
import re
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest

import tfdistr
from tfdistr.errors import ArgumentError, WorkerFailedError
from tfdistr.testing import assert_same_fit

pytestmark = pytest.mark.timeout(400)

X = np.random.default_rng(0).normal(size=(64, 8)).astype("float32")
Y = X.sum(1, keepdims=True)


def network(*layers, loss="mse", metrics=()):
    first, last = keras.layers.Dense(4, "relu", name="first"), keras.layers.Dense(1, name="last")
    model = keras.Sequential([keras.Input((8,)), first, *layers, last], name="net")
    model.compile("adam", loss, metrics=list(metrics))
    return model


def plain():
    return network()


def both():
    noise = keras.layers.GaussianNoise(0.5, name="noise")
    return network(noise, keras.layers.BatchNormalization(name="norm"))


def test_it_returns_the_results_in_the_order_of_the_numbers_of_workers():
    random, given = np.random.get_state()[1].copy(), plain()
    before = given.get_weights()
    fits = assert_same_fit(given, X, Y, workers=[2, 1.0], epochs=2, batch_size=16)
    assert [fit.params["workers"] for fit in fits] == [1, 2]
    assert [len(fit.workers) for fit in fits] == [1, 2]
    for fit in fits:
        assert [fit.params[name] for name in ("seed", "batch_size", "epochs")] == [1, 16, 2]
    assert os.getpid() not in {worker["pid"] for fit in fits for worker in fit.workers}
    assert all(np.array_equal(*pair) for pair in zip(before, given.get_weights(), strict=True))
    assert np.array_equal(random, np.random.get_state()[1])


@pytest.mark.slow(reason="trains models several times")
def test_virtual_workers_have_no_tolerance():
    fits = assert_same_fit(both, X, Y, virtual_workers=2)
    assert all(np.array_equal(*pair) for pair in zip(*(fit.model.get_weights() for fit in fits), strict=True))


def said(model, **arguments) -> list[str]:
    """The lines of the message."""
    with pytest.raises(AssertionError) as caught:
        assert_same_fit(model, X, Y, **arguments)
    return str(caught.value).splitlines()


@pytest.mark.slow(reason="trains models several times")
def test_the_reasons_are_found():
    """same_fit/test_same_fit.py has the other reasons."""
    first, place, counts, history, *rest = said(both)
    assert first == (
        "The fits on 1 and 2 workers differ by more than tolerance=1e-06, and the outputs by 1e-05."
    )
    value = r"-?[\d.e+-]+"
    assert re.fullmatch(
        rf'First difference: the (weight "net\d*/.*"|variable "adam.*" of the optimizer), by {value} '
        rf"\({value} of its largest value\) at \[[\d, ]+\], counted from 0: {value} and {value}", place
    )  # fmt: skip
    assert re.fullmatch(
        r"Different: \d+ of \d+ weights, \d+ of \d+ variables of the optimizer, 1 of 1 metrics of the "
        r"history, \d of 1 outputs", counts
    )  # fmt: skip
    assert re.fullmatch(rf'History: it parts in epoch 1: the metric "loss" is {value} and {value}', history)
    assert rest == [
        "Reason: each worker draws its own random numbers in noise.",
        "Reason: each worker normalizes with its own rows in norm.",
        "Fix: Pass virtual_workers=2: the numbers then do not depend on the number of workers.",
        "Fix: Use BatchNormalization(synchronized=True), or pass virtual_workers=2.",
    ]


@pytest.mark.slow(reason="trains models several times")
def test_rounding_is_known_by_the_traces():
    lines = said(plain, tolerance=1e-12, workers=(1, 2))
    same = r"Known: all 2 steps have the same losses and gradient norms(, but for rounding \(.*\))?\."
    assert re.fullmatch(same, lines[4])
    assert lines[5:] == [
        "Likely reason: the order of a sum changes its rounding, and the training enlarges this.",
        "Fix: Pass virtual_workers=2 for bitwise identical results, or a larger tolerance, or compare "
        "after fewer epochs.",
    ]


REFUSED = [
    ({"workers": 2}, "`workers` must have at least two different", "workers=[2]"),
    ({"workers": (1, 1.5)}, "`workers` must be a whole number of at", "1.5"),
    ({"tolerance": -1e-6}, "`tolerance` must be a number of at least", "-1e-06"),
    ({"cluster": tfdistr.local_cluster(2), "run_dir": "x"}, "A comparison of numbers of workers chooses",
     "cluster, run_dir"),
    ({"strategy": "mirrored"}, "A comparison of numbers of workers needs", "strategy='mirrored'"),
    ({"batch_size": tfdistr.per_worker(8)}, "Compared trainings must have", "batch_size=per_worker(...)"),
    ({"virtual_workers": 1}, "`virtual_workers` must be at least the", "virtual_workers=1, 2 workers"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "rule", "received"), REFUSED)
def test_what_is_refused(arguments, rule, received):
    with pytest.raises(ArgumentError) as caught:
        assert_same_fit(plain, X, Y, **arguments)
    assert caught.value.message.startswith(rule)
    assert str(caught.value.received) == received


def test_a_fit_is_no_model():
    fit = tfdistr.distributed_fit(plain, X, Y, verbose=0)
    with pytest.raises(ArgumentError) as caught:
        assert_same_fit(fit, X, Y)
    assert caught.value.received == "an object of class tfdistr.jobs.result.FitResult"


def test_a_model_that_fails_is_named_with_the_number_of_workers():
    def fails_on_two():
        if tfdistr.num_workers() == 2:
            raise ValueError("not on two")
        return plain()

    failed = r"^Worker [01] of 2 on .* failed: ValueError: not on two"
    with pytest.raises(WorkerFailedError, match=failed) as caught:
        assert_same_fit(fails_on_two, X, Y)
    shutil.rmtree(Path(caught.value.log).parents[1])  # the folder of a job that failed is kept
