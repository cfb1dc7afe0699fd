"""Why a step is not finite: the first tensor, the layer, the operation, and the rows."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from resumed import X, Y, train

import tfdistr
from tfdistr.replays.explain import Cause
from tfdistr.replays.replay import RunAgain

FROM_LOGITS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def of(function: Callable[[Any], Any], rate: float = 0.01, normalized: bool = False) -> Any:
    """A model with a function between two dense layers."""

    def make() -> keras.Model:
        inputs = keras.Input((4,))
        hidden = function(keras.layers.Dense(3, use_bias=False, name="hidden")(inputs) ** 2)
        if normalized:
            hidden = keras.layers.BatchNormalization()(hidden)
        made = keras.Model(inputs, keras.layers.Dense(2, name="out")(hidden))
        made.compile(keras.optimizers.SGD(rate), FROM_LOGITS)
        return made

    return make


class Own(keras.layers.Layer):
    def call(self, inputs: Any) -> Any:
        return 1.0 / inputs


def cause(
    folder: Path, make: Any, x: Any = X, y: Any = Y, tolerance: float = 0.0, **given: Any
) -> tuple[Cause, tfdistr.Replay]:
    train(folder / "run", make, x, y, epochs=1, **given)
    again = tfdistr.replay(folder / "run", "nan", make, x, y)
    assert again.difference <= tolerance
    assert again.cause is not None
    return again.cause, again


def zeros(*rows: int) -> Any:
    x = X.copy()
    x[list(rows)] = 0.0
    return x


@pytest.mark.parametrize(
    ("function", "where", "operation"),
    [(keras.ops.log, "forward", "Log"), (keras.ops.sqrt, "backward", "SqrtGrad"),
     (Own(name="inverse"), "forward", "RealDiv")],
)  # fmt: skip
def test_layer_operation_and_rows(function: Any, where: str, operation: str, tmp_path: Path) -> None:
    found, again = cause(tmp_path, of(function), zeros(33))
    assert (found.where, found.operation) == (where, operation)
    assert found.layer.rstrip("_0123456789") in ("log", "sqrt", "inverse")
    assert [again.rows[row]["index"] for row in found.rows] == [33]
    assert f"{operation} of the layer {found.layer!r}" in str(again)
    assert "Gradient norms of the steps before: " in str(again)


@pytest.mark.parametrize("given", [{"virtual_workers": 2}, {"cluster": tfdistr.local_cluster(2)}])
def test_a_step_of_shares(given: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "1")  # as in a new process, which has chosen one thread
    found, again = cause(tmp_path, of(keras.ops.log), zeros(33), tolerance=1e-5, **given)
    assert (found.where, found.operation) == ("forward", "Log")
    assert [again.rows[row]["index"] for row in found.rows] == [33]


def test_a_label_that_is_no_class_is_found_where_xla_gives_nan(tmp_path: Path) -> None:
    def make() -> keras.Model:
        made = of(keras.ops.tanh)()
        made.compile("sgd", FROM_LOGITS, jit_compile=True)
        return made

    y = Y.copy()
    y[20] = 7
    found, again = cause(tmp_path, make, y=y)
    assert (found.where, found.layer) == ("forward", None)
    assert found.operation == "SparseSoftmaxCrossEntropyWithLogits"
    assert [again.rows[row]["index"] for row in found.rows] == [20]
    assert found.lines[1].startswith("Received a label value of 7 which is outside the valid range of [0, 2)")


def test_several_rows_are_found_by_halving(tmp_path: Path) -> None:
    found, again = cause(tmp_path, of(keras.ops.log), zeros(9, 10, 13), shuffle=False)
    assert again.step == 2
    assert found.rows == [1, 2, 5]
    assert "Caused by rows 1, 2, 5 of the batch, 9, 10, 13 of the data (counted from 0)." in found.lines


def test_a_row_of_a_batch_that_is_normalized(tmp_path: Path) -> None:
    found, again = cause(tmp_path, of(keras.ops.log, normalized=True), zeros(33))
    assert (found.where, [again.rows[row]["index"] for row in found.rows]) == ("forward", [33])


def normalize(rows: Any) -> Any:
    """Divide by 0 if there is one row, or if all rows are the same."""
    return rows / tf.math.reduce_std(rows, axis=0)


def harmless(rows: Any) -> Any:
    """Add 0 to each number, through an infinite one."""
    return rows + tf.stop_gradient(tf.exp(tf.math.log(rows * 0.0)))


def poisoned(rows: Any) -> Any:
    """Multiply the rows of a zero by a constant that is no number."""
    return rows * tf.where(rows == 0.0, tf.constant(np.nan, rows.dtype), tf.ones_like(rows))


def poisoned_elsewhere(rows: Any) -> Any:
    return tf.where(rows == 0.0, tf.stop_gradient(rows) * float("nan"), rows)


class Calls(keras.layers.Layer):
    """A layer of a function, which the rows of a batch use alone."""

    def __init__(self, function: Any, **given: Any) -> None:
        super().__init__(**given)
        self.function = function

    def call(self, inputs: Any) -> Any:
        return self.function(inputs)


NOT_ALONE = [
    (lambda rows: keras.ops.log(Calls(harmless, name="harmless")(rows)), "Log"),
    (Calls(poisoned, name="poisoned"), "SelectV2"),
    (Calls(poisoned_elsewhere, name="elsewhere"), "SelectV2"),
]


@pytest.mark.parametrize(("function", "operation"), NOT_ALONE)
def test_what_is_not_finite_without_the_row_is_not_named(
    function: Any, operation: str, tmp_path: Path
) -> None:
    found, again = cause(tmp_path, of(function), zeros(33))
    assert (found.where, found.operation) == ("forward", operation)
    assert found.layer != "harmless"
    assert [again.rows[row]["index"] for row in found.rows] == [33]


def test_missing_values_that_the_model_fills_are_not_named(tmp_path: Path) -> None:
    def make() -> keras.Model:
        inputs = keras.Input((4,))
        hidden = keras.ops.log(keras.ops.nan_to_num(inputs, nan=1.0))
        made = keras.Model(inputs, keras.layers.Dense(2)(hidden))
        made.compile("sgd", FROM_LOGITS)
        return made

    x = np.abs(X) + 0.1
    x[20:24], x[33] = np.nan, 0.0
    with pytest.warns(tfdistr.TfdistrWarning, match="missing values"):
        found, again = cause(tmp_path, make, x, shuffle=False, batch_size=18)
    assert (found.where, found.operation, found.rows, again.step) == ("forward", "Log", [15], 2)


class Masks(keras.layers.Layer):
    """Has a constant that is infinite."""

    def build(self, shape: Any) -> None:
        self.mask = self.add_weight((1,), keras.initializers.Constant(-np.inf), trainable=False, name="mask")

    def call(self, inputs: Any) -> Any:
        return keras.ops.maximum(inputs, self.mask)


def test_an_infinite_constant_among_the_weights_is_no_cause(tmp_path: Path) -> None:
    make = of(lambda rows: keras.ops.log(Masks()(rows)))
    found, _ = cause(tmp_path, make, zeros(33))
    assert (found.where, found.operation) == ("forward", "Log")
    assert tfdistr.replay(tmp_path / "run", 2, make, zeros(33), Y).cause is None


class InItsCall(keras.Model):
    def __init__(self) -> None:
        super().__init__(name="whole")
        self.out = keras.layers.Dense(2)

    def call(self, inputs: Any) -> Any:
        return self.out(keras.ops.log(keras.ops.square(inputs)))


def test_an_operation_of_a_subclassed_model(tmp_path: Path) -> None:
    def make() -> keras.Model:
        made = InItsCall()
        made.compile("sgd", FROM_LOGITS)
        return made

    found, _ = cause(tmp_path, make, zeros(33))
    assert (found.layer, found.operation) == ("whole", "Log")
    assert found.lines[0].startswith("The first tensor that is not finite: Log of the model 'whole',")


def test_a_loss_that_is_no_number_is_found_though_loss_scaling_skips_the_step(tmp_path: Path) -> None:
    def make() -> keras.Model:
        made = of(keras.ops.log)()
        made.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.01)), FROM_LOGITS)
        return made

    found, again = cause(tmp_path, make, zeros(33))
    assert (found.operation, again.steps[-1]["skipped"]) == ("Log", True)
    assert [again.rows[row]["index"] for row in found.rows] == [33]


class Regularizes(keras.regularizers.Regularizer):
    def __call__(self, weight: Any) -> Any:
        return keras.ops.log(0.0 * keras.ops.sum(weight))


def regularized(rows: Any) -> Any:
    return keras.layers.Dense(3, kernel_regularizer=Regularizes())(rows)


def test_what_no_row_causes(tmp_path: Path) -> None:
    found, _ = cause(tmp_path, of(regularized))
    assert (found.layer, found.operation) == (None, "Log")
    assert "Each row of the batch causes it alone." in found.lines


def test_gradients_whose_norm_overflows(tmp_path: Path) -> None:
    def make() -> keras.Model:
        made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        made.compile(keras.optimizers.SGD(1e-30), lambda y, outputs: 1e25 * keras.ops.mean(outputs, -1))
        return made

    found, _ = cause(tmp_path, make)
    assert found.lines[0].startswith("The gradients are finite, but so large")


class Normalizes(keras.layers.Layer):
    def call(self, inputs: Any) -> Any:
        return normalize(inputs) if self.name == "first" else normalize(keras.ops.log(inputs))


def test_rows_that_are_not_finite_only_alone_are_not_named(tmp_path: Path) -> None:
    found, again = cause(tmp_path, of(Normalizes(name="second")), zeros(33))
    assert (found.operation, [again.rows[row]["index"] for row in found.rows]) == ("Log", [33])


def test_a_batch_is_named_as_a_whole_if_no_row_causes_it(tmp_path: Path) -> None:
    found, _ = cause(tmp_path, of(Normalizes(name="first")), np.ones_like(X))
    assert (found.where, found.rows) == ("forward", None)
    assert any("whole batch" in line for line in found.lines)


def test_missing_values_of_the_inputs(tmp_path: Path) -> None:
    x = X.copy()
    x[20] = np.nan
    with pytest.warns(tfdistr.TfdistrWarning, match="missing values"):
        found, again = cause(tmp_path, of(keras.ops.tanh), x)
    assert (found.where, found.layer) == ("inputs", "x")
    assert [again.rows[row]["index"] for row in found.rows] == [20]


def test_an_update_that_overflows_is_found_in_the_step_before_the_loss(tmp_path: Path) -> None:
    found, again = cause(tmp_path, of(lambda x: 30 * x, rate=1e38))
    assert (found.where, again.step) == ("update", 1)
    assert "of the optimizer, in the update" in str(again)
    assert any(row["inf"] or row["nan"] for row in again.updates)


class Breaks(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if batch == 4:
            weights = self.model.get_weights()
            weights[0][0, 0] = np.nan
            self.model.set_weights(weights)


def test_a_weight_that_was_no_number_before_the_step(tmp_path: Path) -> None:
    train(tmp_path / "run", of(keras.ops.tanh), epochs=1, callbacks=[Breaks()])
    with pytest.warns(tfdistr.TfdistrWarning, match="Breaks"):
        again = tfdistr.replay(tmp_path / "run", 6, of(keras.ops.tanh), X, Y, callbacks=[Breaks()])
    assert (again.cause.where, again.cause.layer) == ("weights", "hidden/kernel")


class BreaksRow(keras.callbacks.Callback):
    """The last row of an embedding is no number after the third step."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 2:
            rows = np.array(self.model.layers[0].embeddings)
            rows[89] = np.nan
            self.model.layers[0].embeddings.assign(rows)


def test_a_weight_that_is_used_long_after_it_was_no_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, own = list[int](), RunAgain.replay
    monkeypatch.setattr(RunAgain, "replay", lambda run, step: (steps.append(step), own(run, step))[1])

    def make() -> keras.Model:
        layers = [keras.layers.Embedding(90, 2, name="rows"), keras.layers.Flatten(), keras.layers.Dense(2)]
        made = keras.Sequential([keras.Input((1,), dtype="int32"), *layers])
        made.compile("sgd", FROM_LOGITS)
        return made

    x = np.arange(90, dtype="int32").reshape(90, 1)
    train(tmp_path / "run", make, x, epochs=1, shuffle=False, callbacks=[BreaksRow()])
    with pytest.warns(tfdistr.TfdistrWarning, match="BreaksRow"):
        again = tfdistr.replay(tmp_path / "run", "nan", make, x, Y, callbacks=[BreaksRow()])
    assert again.step == 3
    assert len(set(steps)) == len(steps) > 2  # each step is made again once
    assert "rows/embeddings is not after it: a callback may have set it." in again.cause.lines[0]


EXPLAIN = tfdistr.on_failure(nan="explain")


@pytest.mark.parametrize("given", [{}, {"cluster": tfdistr.local_cluster(2)}])
def test_a_job_ends_with_the_cause(given: Any, tmp_path: Path) -> None:
    with pytest.raises(tfdistr.NotFiniteError) as raised:
        train(tmp_path / "run", of(keras.ops.log), zeros(33), failures=EXPLAIN, **given)
    text = str(raised.value)
    assert text.startswith("The loss, the gradients or the update of step 5 are not finite.\nReceived: ")
    assert "Log of the layer 'log" in text
    assert "Caused by row 6 of the batch, 33 of the data (counted from 0)." in text


class WithoutOptimizer(keras.Sequential):
    """A step of one's own that changes the weights itself."""

    def train_step(self, data: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.math.log(self(data[0])))
        for weight, gradient in zip(
            self.trainable_variables, tape.gradient(loss, self.trainable_variables), strict=True
        ):
            weight.assign(weight - 0.1 * gradient)
        return {"loss": loss}


def test_a_model_without_an_optimizer(tmp_path: Path) -> None:
    def make() -> keras.Model:
        made = WithoutOptimizer([keras.Input((4,)), keras.layers.Dense(2, name="hidden")])
        made.compile(None)
        return made

    with pytest.raises(tfdistr.NotFiniteError, match="Log of the loss"):
        train(tmp_path / "run", make, epochs=2, failures=EXPLAIN)


class Zeroes(keras.callbacks.Callback):
    """The third epoch begins with zeros before the logarithm."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if epoch == 2:
            kernel = self.model.get_layer("hidden").kernel
            kernel.assign(keras.ops.zeros_like(kernel))


def test_callbacks_get_the_validation_of_the_job(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    rate = keras.callbacks.ReduceLROnPlateau(monitor="val_loss", patience=0, min_delta=10.0)
    with pytest.raises(tfdistr.NotFiniteError, match="Log of the layer"):
        train(
            tmp_path / "run", of(keras.ops.log), epochs=3, validation_data=(X[:20], Y[:20]),
            callbacks=[rate, Zeroes()], checkpoint_every=100, failures=EXPLAIN,
        )  # fmt: skip
    assert "differs from the run" not in " ".join(str(each.message) for each in recwarn)


def test_a_job_that_fails_otherwise_has_its_own_error(tmp_path: Path) -> None:
    with pytest.raises(tfdistr.ArgumentError, match="must be a function that returns a Keras 3 model"):
        train(tmp_path / "run", lambda: 5, failures=EXPLAIN)


def test_a_model_that_cannot_be_replayed(tmp_path: Path) -> None:
    with pytest.raises(tfdistr.NotFiniteError, match="A replay in this process is not possible: `model`"):
        train(tmp_path / "run", of(keras.ops.log)(), zeros(33), failures=EXPLAIN)


def test_it_needs_a_folder_and_a_word_that_is_known(tmp_path: Path) -> None:
    with pytest.raises(tfdistr.ArgumentError, match="`nan` needs `run_dir`"):
        train(None, of(keras.ops.log), checkpoint_every=None, failures=EXPLAIN)
    with pytest.raises(tfdistr.ArgumentError, match="`nan` must be"):
        tfdistr.on_failure(nan="stop")
