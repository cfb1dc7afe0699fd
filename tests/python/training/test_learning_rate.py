"""Steps, learning rates and the warm-up, against numbers computed by hand."""

import math
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from refusals import assert_says

import tfdistr
from tfdistr import per_worker
from tfdistr.errors import ArgumentError
from tfdistr.training.job_arguments import make_job
from tfdistr.training.learning_rate import scale_learning_rate


@pytest.mark.parametrize(
    ("examples", "size", "up", "down"),
    [(1000, 256, 4, 3), (1024, 256, 4, 4), (1025, 256, 5, 4), (256, 256, 1, 1), (3, 1, 3, 3),
     (1437, 64, 23, 22), (1e9, 3, 333333334, 333333333)],
)  # fmt: skip
def test_steps_are_batches_of_one_pass(examples, size, up, down):
    assert tfdistr.steps_per_epoch(examples, size) == up
    assert tfdistr.steps_per_epoch(examples, size, drop_remainder=True) == down
    assert type(tfdistr.steps_per_epoch(examples, size)) is int


def test_without_a_full_batch_there_is_a_step_only_for_what_is_left():
    assert tfdistr.steps_per_epoch(10, 32) == 1
    with pytest.raises(ArgumentError) as caught:
        tfdistr.steps_per_epoch(10, 32, drop_remainder=True)
    assert caught.value.received == "10 examples, a global batch of 32"


@pytest.mark.parametrize(
    ("arguments", "rate"),
    [((0.1, 4), 0.4), ((0.1, 4, "linear"), 0.4), ((0.1, 4, "sqrt"), 0.2), ((0.1, 4, "none"), 0.1),
     ((0.1, 2, "sqrt"), 0.1 * math.sqrt(2)), ((1, 1), 1.0), ((0.5, 3.0, "linear"), 1.5)],
)  # fmt: skip
def test_learning_rates_by_hand(arguments, rate):
    assert tfdistr.scaled_learning_rate(*arguments) == pytest.approx(rate, rel=1e-15)


X = np.arange(20.0, dtype="float32").reshape(10, 2) / 20
Y = X.sum(1)


def compiled(rate: Any = 0.1, **options: Any) -> keras.Model:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, kernel_initializer="zeros")])
    model.compile(rate if isinstance(rate, keras.optimizers.Optimizer) else keras.optimizers.SGD(rate),
                  "mse", **options)  # fmt: skip
    return model


class Rates(keras.callbacks.Callback):
    """The learning rate of each step (of the first one of each execution)."""

    def __init__(self) -> None:
        super().__init__()
        self.rates: list[float] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.rates.append(float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate)))


def rates(model: keras.Model, *callbacks: Any, data: Any = None, **fit: Any) -> list[float]:
    seen = Rates()
    # 10 examples in batches of 4: three steps in an epoch
    data = {"x": X, "y": Y, "batch_size": 4} if data is None else {"x": data}
    model.fit(**data, shuffle=False, verbose=0, callbacks=[*callbacks, seen], **fit)
    return seen.rates


def batches() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(4)


def test_the_steps_of_an_execution_have_the_rate_of_the_first_one():
    model = compiled(steps_per_execution=2)
    seen = rates(model, tfdistr.WarmUp(0.1, 0.4, epochs=2), epochs=3)
    assert seen == pytest.approx([0.1, 0.2, 0.25, 0.35, 0.4, 0.4])  # steps 0 and 2 of each epoch
    steps = [0.1, 0.1, 0.2, 0.25, 0.25, 0.35, 0.4, 0.4, 0.4]
    assert weights(model) == pytest.approx(by_hand(steps, [(0, 4), (4, 8), (8, 10)] * 3), abs=1e-6)


def weights(model: keras.Model) -> list[float]:
    kernel, bias = model.get_weights()
    return [*kernel[:, 0].tolist(), *bias.tolist()]


def by_hand(rates_of_steps: list[float], rows_of_steps: list[tuple[int, int]]) -> list[float]:
    """What plain SGD makes of the weights with these rates and rows."""
    inputs, found = np.c_[X, np.ones(10)], np.zeros(3)
    for rate, (first, end) in zip(rates_of_steps, rows_of_steps, strict=True):
        x, y = inputs[first:end], Y[first:end]
        found -= rate * 2 * x.T @ (x @ found - y) / len(y)
    return found.tolist()


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_where_the_number_of_steps_is_unknown_they_are_counted_in_the_first_epoch():
    unknown = batches().filter(lambda x, y: True)
    seen = rates(compiled(), tfdistr.WarmUp(0.1, 0.4, epochs=2), data=unknown, epochs=3)
    assert seen == pytest.approx([0.1, 0.1, 0.1, 0.25, 0.3, 0.35, 0.4, 0.4, 0.4])


def test_training_that_goes_on_does_not_warm_up_again():
    model, warm_up = compiled(), tfdistr.WarmUp(0.1, 0.4, epochs=2)
    assert rates(model, warm_up, epochs=1) == pytest.approx([0.1, 0.15, 0.2])
    assert rates(model, warm_up, initial_epoch=1, epochs=3) == pytest.approx([0.25, 0.3, 0.35, 0.4, 0.4, 0.4])
    assert rates(model, warm_up, initial_epoch=3, epochs=4) == pytest.approx([0.4] * 3)


@pytest.mark.parametrize(
    ("optimizer", "others", "epochs", "expected"),
    [
        (lambda: 0.1, [keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2)], 3,
         [0.1, 0.2, 0.3, 0.2, 0.2, 0.2, 0.1, 0.1, 0.1]),
        (lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)), [], 2,
         [0.1, 0.2, 0.3, 0.4, 0.4, 0.4]),
    ],
    ids=["another callback after the warm-up", "inside a loss scale optimizer"],
)  # fmt: skip
def test_rates_of_a_warm_up(optimizer, others, epochs, expected):
    seen = rates(compiled(optimizer()), tfdistr.WarmUp(0.1, 0.4, epochs=1), *others, epochs=epochs)
    assert seen == pytest.approx(expected)


def test_it_sets_the_rate_under_the_strategy(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", "")
    with tfdistr.make_strategy().scope():
        model = compiled()
    assert rates(model, tfdistr.WarmUp(0.1, 0.4, epochs=1), epochs=2) == pytest.approx(
        [0.1, 0.2, 0.3, 0.4, 0.4, 0.4]
    )


SCHEDULES = [keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5), lambda: 0.1]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=["schedule", "function"])
def test_a_schedule_is_refused(schedule):
    with pytest.raises(ArgumentError, match=r"WarmUp needs a learning rate that is a number\.") as caught:
        rates(compiled(schedule), tfdistr.WarmUp(0.1, 0.4, epochs=1))
    assert caught.value.received == "an optimizer with a learning-rate schedule"
    with pytest.raises(ArgumentError, match="`scale_learning_rate` needs a learning rate that") as caught:
        scale_learning_rate(keras.optimizers.SGD(schedule), 2.0)
    assert caught.value.received == "an optimizer with a learning-rate schedule"


def test_an_optimizer_is_scaled_at_once_or_with_a_warm_up():
    optimizer = keras.optimizers.SGD(0.1)
    assert scale_learning_rate(optimizer, 4.0) == []
    assert float(optimizer.learning_rate) == pytest.approx(0.4)
    (warm_up,) = scale_learning_rate(optimizer, 2.0, 3)
    assert (warm_up.initial, warm_up.target, warm_up.epochs) == (pytest.approx(0.4), pytest.approx(0.8), 3)
    assert float(optimizer.learning_rate) == pytest.approx(0.8)
    assert scale_learning_rate(keras.optimizers.SGD(SCHEDULES[0]), 1.0, 3) == []
    assert scale_learning_rate(None, 4.0, 3) == []


def job(**arguments: Any) -> Any:
    return make_job(compiled, X, Y, num_workers=2, **{"batch_size": 4} | arguments)


def test_a_job_has_the_warm_up_and_drops_the_remainder():
    batch_size = per_worker(2, scale_learning_rate="linear", warmup_epochs=2.0)
    made = job(epochs=3.0, batch_size=batch_size, drop_remainder=True)
    assert (made.epochs, made.warmup_epochs, made.drop_remainder) == (3, 2, True)
    assert made.params["warmup_epochs"] == 2
    assert made.params["drop_remainder"] is True
    assert (job().warmup_epochs, job().drop_remainder) == (0, False)
    batch_size = per_worker(2, scale_learning_rate="sqrt", warmup_epochs=3)
    assert job(epochs=3, batch_size=batch_size).warmup_epochs == 3


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: tfdistr.scaled_learning_rate(0.1, 4, "cubic"),
         ["`scale` must be one of 'none', 'linear',", "Received: 'cubic'", "Use scale='none'."]),
        *((lambda rate=rate: tfdistr.scaled_learning_rate(rate, 4),
           ["`learning_rate` must be a number above 0.", f"Received: {rate!r}"])
          for rate in (0, -0.1, math.nan, math.inf, True, "0.1", None, [0.1, 0.2])),
        (lambda: tfdistr.WarmUp(0, 0.4, 1), ["`initial` must be a number above 0."]),
        (lambda: tfdistr.WarmUp(0.1, -1, 1), ["`target` must be a number above 0."]),
        (lambda: tfdistr.WarmUp(0.1, 0.4, 0), ["`epochs` must be a whole number of at least 1."]),
        (lambda: per_worker(2, warmup_epochs=1),
         ["`warmup_epochs` needs a scaled learning",
          'Received: warmup_epochs=1, scale_learning_rate="none"']),
        (lambda: job(batch_size=per_worker(2, scale_learning_rate="linear", warmup_epochs=3), epochs=2),
         ["`warmup_epochs` must be at most `epochs`,", "Received: warmup_epochs=3, epochs=2",
          "Pass warmup_epochs=2 or less, or more epochs."]),
        (lambda: per_worker(2, warmup_epochs=-1),
         ["`warmup_epochs` must be a whole number of", "Received: -1", "Pass warmup_epochs=1, for example."]),
        (lambda: job(drop_remainder=True, batch_size=11),
         ["With `drop_remainder` there must be at", "Received: 10 examples, a global batch of 11"]),
    ],
)  # fmt: skip
def test_what_is_refused_of_rates(call, said):
    with pytest.raises(ArgumentError) as caught:
        call()
    assert_says(caught.value, said)


def test_batches_of_a_function_are_its_own():
    with pytest.raises(ArgumentError, match="`drop_remainder` is for batches that tfdistr") as caught:
        make_job(compiled, lambda: None, num_workers=2, batch_size=None, drop_remainder=True)
    assert caught.value.received == "no batch_size, and `x` gives ready batches"


@pytest.mark.parametrize(("drop", "passes"), [(False, [(0, 4), (4, 8), (8, 10)]), (True, [(0, 4), (4, 8)])])
def test_with_steps_per_epoch_passes_go_on_over_the_ends_of_epochs(drop, passes):
    """Two epochs of 4 steps; no batch has examples of two passes."""
    fit = tfdistr.distributed_fit(
        compiled, X, Y, batch_size=4, steps_per_epoch=4, epochs=2, drop_remainder=drop, shuffle=False,
        verbose=0,
    )  # fmt: skip
    assert weights(fit.model) == pytest.approx(by_hand([0.1] * 8, (passes * 4)[:8]), abs=1e-6)
