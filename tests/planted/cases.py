"""The planted faults."""

from __future__ import annotations

import functools
from typing import Any

import keras
import numpy as np
import plants
import tensorflow as tf
from case import Case, Found, step_of, with_row
from keras import ops
from nets import BATCH, DATA, ROWS, Flipping, InParts

import tfdistr

X, Y = DATA["dense"]


def own_loss(y_true: Any, y_pred: Any) -> Any:
    """Take the logarithm of the targets."""
    logs = ops.log(ops.cast(ops.reshape(y_true, (-1, 1)), "float32") + 1.0)
    return ops.mean(ops.square(logs - y_pred), -1)


def own_softmax(logits: Any) -> Any:
    powers = ops.exp(logits)
    return powers / ops.sum(powers, -1, keepdims=True)


def in_16_bits(hidden: Any) -> Any:
    return ops.cast(ops.cast(hidden, "float16"), "float32")


def falling(epoch: int, rate: float) -> float:
    return 0.05 if epoch == 0 else 0.01


def times_100(hidden: Any) -> Any:
    return 100.0 * hidden


def weights_with(row: int, value: float) -> Any:
    weight = np.ones(ROWS, "float32")
    weight[row] = value
    return weight


def from_file(x: Any, y: Any) -> Any:
    """Return a function that makes a pipeline of batches."""
    return lambda: tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)


NAN, INF = float("nan"), float("inf")
OUT = {"model": {"out": Flipping}}
EVERY = {"checkpoint_every": 1}
ORDER = np.arange(ROWS)[::-1]

BAD_ROWS = [
    Case("zero under a logarithm", "log", Found(step_of(33), "forward: Log", "log", 33), by="nan",
         other={"x": with_row("log", 33, 0.0)}),
    Case("zero under a logarithm", "log", Found(step_of(50), "forward: Log", "log", 50), 2, by="nan",
         other={"x": with_row("log", 50, 0.0)}),
    Case("zero under a logarithm", "log", Found(9, "forward: Log", "log", 70), 3, 4, by="nan",
         other={"x": with_row("log", 70, 0.0), "shuffle": False}),
    Case("gradient of a root at zero", "dense", Found(step_of(8), "backward: SqrtGrad", "sqrt", 8), by="nan",
         both={"model": {"function": ops.sqrt, "activation": "softplus"}},
         other={"x": with_row("dense", 8, 500.0)}),
    Case("NaN in a row", "dense", Found(step_of(20), "inputs", "x", 20), by="nan",
         other={"x": with_row("dense", 20, NAN)}),
    Case("NaN in a row", "cnn", Found(step_of(61), "inputs", "x", 61), 2, 2, by="nan",
         other={"x": with_row("cnn", 61, NAN)}),
    Case("Inf in a row", "lstm", Found(step_of(5), "inputs", "x", 5), by="nan",
         other={"x": with_row("lstm", 5, INF)}),
    Case("Inf in a row", "cnn", Found(6, "inputs", "x", 44), 4, 4, by="nan",
         other={"x": with_row("cnn", 44, INF), "shuffle": False}),
    Case("NaN as a weight of a row", "dense", Found(step_of(12), "inputs", "sample_weight", 12), by="nan",
         other={"sample_weight": weights_with(12, NAN)}),
    Case("label out of range", "dense", Found(step_of(17), "forward: Log", None, 17), by="nan",
         both={"model": {"loss": own_loss}}, other={"y": with_row("dense", 17, -3, 1)}),
    Case("label out of range", "dense", Found(step_of(17), "forward: Log", None, 17), 2, by="nan",
         both={"model": {"loss": own_loss}}, other={"y": with_row("dense", 17, -3, 1)}),
    Case("label out of range, compiled by XLA", "dense",
         Found(step_of(90), "forward: SparseSoftmaxCrossEntropyWithLogits", None, 90), by="nan",
         both={"model": {"jit_compile": True}}, other={"y": with_row("dense", 90, 7, 1)}),
    Case("bad row before batch normalization", "normal", Found(step_of(3), "forward: Log", "log", 3),
         by="nan", both={"model": {"function": lambda inputs: ops.log(inputs**2)}},
         other={"x": with_row("normal", 3, 0.0)}),
]  # fmt: skip

OVERFLOWS = [
    Case("learning rate of 1e38", "dense", Found(1, "update: Mul"), by="nan",
         both={"model": {"function": times_100}}, other={"model": {"rate": 1e38}}),
    Case("learning rate of 1e38 after step 7", "cnn", Found(8, "update: Mul"), 2, 2, by="nan",
         both={"model": {"function": times_100}},
         other={"callbacks": [plants.AtStep(7, plants.sets_rate(1e38))]}),
    Case("overflow of float16", "half", Found(step_of(50), "forward: Mul", "scale", 50), by="nan",
         both={"model": {"factor": 50.0, "rate": 0.0}}, other={"x": with_row("half", 50, 5e3)}),
    Case("overflow of float16", "half", Found(step_of(51), "forward: Mul", "scale", 51), 2, 2, by="nan",
         both={"model": {"factor": 50.0, "rate": 0.0}}, other={"x": with_row("half", 51, 5e3)}),
    Case("overflow of an exponential", "dense", Found(step_of(41), "forward: Exp", "exp", 41), 2, by="nan",
         both={"model": {"function": own_softmax, "activation": "linear", "rate": 0.0}},
         other={"x": with_row("dense", 41, 1e4)}),
]  # fmt: skip

RATES = [
    Case("other learning rate after step 5", "dense", Found(6, "learning rate", odd="b"),
         other={"callbacks": [plants.AtStep(5, plants.sets_rate(0.01))]}),
    Case("other learning rate after step 5", "lstm", Found(6, "learning rate", odd="b"), 2, 2,
         other={"callbacks": [plants.AtStep(5, plants.sets_rate(0.01))]}),
    Case("other learning rate by a schedule", "cnn", Found(7, "learning rate"), knows="model",
         other={"model": {"rate": keras.optimizers.schedules.PiecewiseConstantDecay([5], [0.05, 0.01])}}),
    Case("other learning rate in epoch 2, by a callback", "dense", Found(13, "learning rate"), 2,
         other={"callbacks": [keras.callbacks.LearningRateScheduler(falling)]}, knows="callbacks"),
    Case("other learning rate of the optimizer", "attention", Found(1, "learning rate"), knows="model",
         other={"model": {"rate": 0.01}}),
]  # fmt: skip

KERNELS = [
    Case("layer with other rounding", "dense", Found(1, "code", "hidden"), knows="model",
         other={"model": {"layer": InParts}}),
    Case("other rounding, of which the examiner knows nothing", "cnn", Found(1, "code", odd="b"),
         other={"model": {"function": in_16_bits}}),
    Case("jit_compile", "cnn", Found(1, "kernel"), knows="model", other={"model": {"jit_compile": True}}),
    Case("jit_compile", "attention", Found(1, "kernel"), knows="model",
         other={"model": {"jit_compile": True}}),
    Case("oneDNN", "cnn", Found(1, "kernel", odd="b"), examined={"tolerance": 0.0},
         other={"cluster": tfdistr.local_cluster(1, env={"TF_ENABLE_ONEDNN_OPTS": "1"}, warm=False)}),
]  # fmt: skip

WEIGHTS = [
    Case("bit of a weight in a checkpoint", "dense", Found(13, "weights", "hidden"), resumed=True,
         after=functools.partial(plants.flip_checkpoint, shape=(4, 8))),
    Case("bit of a weight in a checkpoint", "cnn", Found(13, "weights", "conv"), 2, 2, resumed=True,
         after=functools.partial(plants.flip_checkpoint, shape=(3, 3, 1, 4))),
    Case("bit of a weight in a checkpoint", "lstm", Found(13, "weights", "lstm"), 2, resumed=True,
         after=functools.partial(plants.flip_checkpoint, shape=(3, 16))),
    Case("bit of a weight after step 5", "dense", Found(6, "weights", "hidden"), both=EVERY,
         other={"callbacks": [plants.AtStep(5, plants.flips("hidden"))]}),
    Case("bit of a weight after step 6, between checkpoints", "cnn", Found(7, "weights", odd="b"),
         other={"callbacks": [plants.AtStep(6, plants.flips("conv"))]}),
    Case("bit of a weight after step 5, on all workers", "attention", Found(6, "weights", "words"), 2, 2,
         both=EVERY, other={"callbacks": [plants.AtStep(5, plants.flips("words"))]}),
    Case("bit of a bias after step 5", "lstm", Found(6, "weights", "out"), both=EVERY,
         other={"callbacks": [plants.AtStep(5, plants.flips("out", 0))]}),
]  # fmt: skip

GRADIENTS = [
    Case("bit of a gradient in step 6", "dense", Found(6, "gradients", "out", odd="b"), both=OUT | EVERY,
         other={"model": {"flip": (6, 0)}}),
    Case("bit of a gradient in step 6, on one worker", "dense", Found(6, "gradients", "out", odd="b"), 2, 2,
         both=OUT | EVERY, other={"model": {"flip": (6, 1)}}),
    Case("bit of a gradient in step 6, on one worker", "cnn", Found(6, "gradients", odd="b"), 2,
         both=OUT, other={"model": {"flip": (6, 1)}}),
    Case("bit of a gradient in step 6, on one worker", "lstm", Found(6, "gradients", odd="b"), 3, 3,
         both=OUT, other={"model": {"flip": (6, 2)}}),
    Case("bit of a gradient in step 6, by known code", "cnn", Found(6, "code", "out"), 2, 2, knows="model",
         both=OUT, other={"model": {"flip": (6, None)}}),
]  # fmt: skip

CHECKPOINTS = [
    Case("torn checkpoint", "dense", Found(None, "it is torn"), by="replay",
         after=functools.partial(plants.tear_checkpoint, at=-2)),
    Case("two checkpoints swapped", "cnn", Found(None, "it is the checkpoint at epoch 1, step 4"), 2, 2,
         by="replay", after=functools.partial(plants.swap_checkpoints, one=0, other=-2)),
    Case("two checkpoints swapped, then resumed", "dense",
         Found(None, "it is the checkpoint at epoch 1, step 4"),
         by="training", resumed=True, after=plants.swap_checkpoints),
    Case("bit of a weight in a checkpoint of a complete run", "dense", Found(12, "steps 9 to 12 differ"),
         by="verify", after=functools.partial(plants.flip_checkpoint, shape=(4, 8), at=2)),
    Case("bit of a weight in a checkpoint of a complete run", "cnn", Found(16, "steps 13 to 16 differ"), 2, 2,
         by="verify", after=functools.partial(plants.flip_checkpoint, shape=(3, 3, 1, 4), at=3)),
    Case("bit of a weight in the last checkpoint", "lstm", Found(24, "steps 21 to 24 differ"),
         by="verify", after=functools.partial(plants.flip_checkpoint, shape=(3, 16))),
    Case("two checkpoints swapped", "attention", Found(None, "it is the checkpoint at epoch 2, step 4"),
         by="verify", after=functools.partial(plants.swap_checkpoints, one=1, other=3)),
    Case("number of a step in the trace", "dense", Found(6, "steps 5 to 8 differ"), 2, 2,
         by="verify", after=functools.partial(plants.change_trace, step=6)),
]  # fmt: skip

DATA_FAULTS = [
    Case("one value of a row", "dense", Found(step_of(77), "data", None, 77), knows="data",
         other={"x": with_row("dense", 77, 0.5)}),
    Case("one value of a row", "cnn", Found(step_of(30), "data", None, 30), 3, 4, knows="data",
         other={"x": with_row("cnn", 30, 0.5)}),
    Case("label of a row", "lstm", Found(step_of(9), "data", None, 9), 2, knows="data",
         other={"y": with_row("lstm", 9, 1 - DATA["lstm"][1][9], 1)}),
    Case("row of a file", "dense", Found(4, "data", None, 2), knows="data",
         both={"x": from_file(X, Y), "y": None, "batch_size": None},
         other={"x": from_file(with_row("dense", 26, 0.5), Y)}),
    Case("other data than in the run", "dense", Found(None, "arrays with the digest"), by="replay",
         other={"x": with_row("dense", 1, 0.5)}),
    Case("other order of the rows", "attention", Found(1, "data"), knows="data",
         other={"x": DATA["attention"][0][ORDER], "y": DATA["attention"][1][ORDER]}),
]  # fmt: skip

SETTINGS = [
    Case("seed", "dense", Found(1, "settings"), other={"seed": 2}),
    Case("shuffle", "lstm", Found(1, "settings"), 2, 2, other={"shuffle": False}),
    Case("class_weight", "cnn", Found(1, "settings"), 2, other={"class_weight": {0: 1.0, 1: 1.5}}),
    Case("batch_size", "attention", Found(1, "settings"), other={"batch_size": 16}),
]  # fmt: skip

MODELS_OF_OTHERS = [
    Case("one more unit", "dense", Found(1, "code", "hidden"), other={"model": {"units": 9}}, knows="model"),
    Case("one more unit, of which the examiner knows nothing", "lstm",
         Found(None, "The model of a replay must be that of the run"), other={"model": {"units": 5}}),
    Case("other activation", "cnn", Found(1, "code", "conv"), 2, 2, other={"model": {"activation": "elu"}},
         knows="model"),
    Case("seed of an initializer", "dense", Found(1, "weights", "out"), 2,
         both={"model": {"seed": 1}}, other={"model": {"seed": 2}}, knows="model"),
    Case("momentum of batch normalization", "normal", Found(1, "code", "normal"), knows="model",
         other={"model": {"momentum": 0.8}}),
    Case("seed of a dropout", "dense", Found(1, "random numbers", "drop"), knows="model",
         both={"model": {"drop": 1}}, other={"model": {"drop": 2}}),
    Case("seed of a dropout", "dense", Found(1, "random numbers", "drop"), 2, 2, knows="model",
         both={"model": {"drop": 1}}, other={"model": {"drop": 2}}),
]  # fmt: skip

#: The faults by their kinds.
CASES = {
    "rows that are no numbers": BAD_ROWS,
    "overflows": OVERFLOWS,
    "learning rates": RATES,
    "kernels": KERNELS,
    "bits of weights": WEIGHTS,
    "bits of gradients": GRADIENTS,
    "files of checkpoints": CHECKPOINTS,
    "data": DATA_FAULTS,
    "settings": SETTINGS,
    "models": MODELS_OF_OTHERS,
}
