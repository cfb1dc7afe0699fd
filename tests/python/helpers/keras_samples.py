"""Inputs and arguments with which the parts of Keras are tried, row by row or together."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

#: The arrays of an input: each has three rows in ascending order, with very different sizes.
Arrays = list[np.ndarray]


class Masked(list[np.ndarray]):
    """Inputs with a mask."""

    mask = np.array([[1, 0, 1], [0, 0, 1], [1, 1, 0]], bool)


_RANDOM = np.random.default_rng(5)


def floats(*shape: int) -> np.ndarray:
    values = np.sort(_RANDOM.uniform(0.05, 1, (3, *shape)), axis=0)
    # A maximum over the batch may matter for large values only.
    return (values * np.array([1e-3, 1, 1e3]).reshape(3, *[1] * len(shape))).astype("float32")


def probabilities(*shape: int) -> np.ndarray:
    values = _RANDOM.uniform(0.05, 1, (3, *shape))
    return np.sort(values / values.sum(-1, keepdims=True) if shape else values, axis=0).astype("float32")


def numbers(*shape: int, below: int = 3) -> np.ndarray:
    values = _RANDOM.integers(below, size=(3, *shape))
    values.reshape(3, -1)[:, 0] = np.arange(3) % below
    return values.astype("int32")


def words(*shape: int) -> np.ndarray:
    return numbers(*shape).astype(str).astype(object)


def classes(*shape: int) -> np.ndarray:
    return np.eye(4, dtype="float32")[numbers(*shape, below=4)]


#: For layers. Scalars come first, then every rank that a layer needs.
INPUTS: dict[str, Arrays] = {
    "scalars": [floats()],
    "whole scalars": [numbers()],
    "words": [words()],
    "two scalars": [floats(), floats()],
    "two whole scalars": [numbers(), numbers()],
    "vectors": [floats(4)],
    "ids": [numbers(4)],
    "texts": [words(1)],
    "two vectors": [floats(4), floats(4)],
    "scalars and vectors": [floats(), floats(4)],
    "sequences": [floats(3, 4)],
    "sequences of ids": [numbers(3, 4)],
    "masked sequences": Masked([floats(3, 4)]),
    "two sequences": [floats(3, 4), floats(3, 4)],
    "vectors and sequences": [floats(4), floats(3, 4)],
    "maps": [floats(4, 4, 4)],
    "two maps": [floats(2, 2, 4), floats(2, 2, 4)],
    "images": [floats(8, 8, 3)],
    "volumes": [floats(3, 4, 4, 4)],
    "two volumes": [floats(2, 2, 2, 4), floats(2, 2, 2, 4)],
    "sequences and states": [floats(3, 4), floats(4)],
    "sequences and two states": [floats(3, 4), floats(4), floats(4)],
    "sounds": [floats(600)],
}

#: Labels and predictions, for losses and metrics.
LABELS: dict[str, Arrays] = {
    "scalars": [numbers(below=2).astype("float32"), probabilities()],
    "whole scalars": [numbers(below=2), probabilities()],
    "binary": [numbers(1, below=2).astype("float32"), _RANDOM.uniform(0.05, 0.95, (3, 1)).astype("float32")],
    "vectors": [probabilities(4), probabilities(4)],
    "one-hot": [classes(), probabilities(4)],
    "classes": [numbers(1, below=4), probabilities(4)],
    "flat classes": [numbers(below=4), probabilities(4)],
    "repeated classes": [np.array([[1], [1], [2]], "int32"), probabilities(4)],
    # A length that is no number of rows, so that a weight of each row cannot become one of each position.
    "sequences": [classes(5), probabilities(5, 4)],
    "sequences of classes": [numbers(5, below=4), probabilities(5, 4)],
    "maps": [classes(5, 2), probabilities(5, 2, 4)],
    "maps of classes": [numbers(5, 2, below=4), probabilities(5, 2, 4)],
    "volumes": [classes(5, 2, 2), probabilities(5, 2, 2, 4)],
    "volumes of classes": [numbers(5, 2, 2, below=4), probabilities(5, 2, 2, 4)],
    "characters": [1 + numbers(2, below=3), probabilities(6, 5)],
    "predicted classes": [numbers(1, below=4), numbers(1, below=4)],
}


def mixing(x: Any, *_: Any, **__: Any) -> Any:
    """A function that mixes rows."""
    return x - keras.ops.mean(x, axis=0, keepdims=True)


#: Arguments without a default.
_REQUIRED: dict[str, Any] = {
    "activation": "tanh", "axes": 1, "dims": (1,), "equation": "...a,ab->...b", "factor": 0.5,
    "filters": 4, "function": "relu", "head_dim": 4, "height": 4, "height_factor": 0.3, "input_dim": 4,
    "kernel_size": 2, "key_dim": 4,
    "max_number": 2, "n": 2, "num_bins": 3, "num_classes": 4, "num_heads": 2, "num_key_value_heads": 2,
    "num_query_heads": 2, "num_tokens": 4, "output_dim": 4, "output_shape": (4,), "output_size": 2,
    "pool_size": 2, "precision": 0.5, "rate": 0.5, "recall": 0.5, "scale": 0.5, "sensitivity": 0.5,
    "specificity": 0.5,
    "stddev": 0.5, "target_class_ids": (0, 1), "units": 4, "width": 4, "width_factor": 0.3,
}  # fmt: skip
#: Arguments of some classes.
_OF_CLASS: dict[str, dict[str, Any]] = {
    "AUC": {"num_thresholds": 5},
    "CategoryEncoding": {"num_tokens": 4},
    "Discretization": {"bin_boundaries": [0.5, 5.0]},
    "EinsumDense": {"output_shape": 4},
    "FBetaScore": {"average": "macro"},
    "L1L2": {"l1": 0.1, "l2": 0.2},
    "GroupNormalization": {"groups": 2},
    "IntegerLookup": {"vocabulary": [0, 1]},
    "MelSpectrogram": {"fft_length": 64, "sequence_stride": 32, "num_mel_bins": 8},
    "Normalization": {"mean": 1.0, "variance": 2.0},
    "RandomBrightness": {"factor": 0.9},
    "RandomZoom": {"height_factor": 0.3},
    "Reshape": {"target_shape": (-1, 2)},
    "StringLookup": {"vocabulary": ["0", "1"]},
    "STFTSpectrogram": {"frame_length": 64},
    "TextVectorization": {"vocabulary": ["0", "1"], "output_sequence_length": 2},
}
_IMAGES = {"data_format": ["channels_first"], "interpolation": ["nearest", "bilinear"]}
#: Other values of an argument than its default. None of them is a number: numbers are sizes and rates.
_VALUES: dict[str, list[Any]] = {
    **_IMAGES,
    "activation": [mixing],
    "attention_axes": [(0,), (1,), (0, 1)],
    "average": ["micro", "macro", "weighted"],
    "axes": [0, -1, -2, -3, (0, 0), (0, 1), (1, 1), (1, 2), (2, 1)],
    "axis": [0, 1, -2, -3, -4, (0,), (0, 1), (1, 2), (-2, -1), None],
    "bias_axes": ["b"],
    "class_aggregation": [None, "variance_weighted_average"],
    "call_endpoint": [],
    "class_id": [1],
    "curve": ["PR"],
    "dropout": [0.5],
    "encoding": [],
    "equation": ["ab,bc->ca", "ab,bc->ac", "abc,cd->bad", "abc,cd->abd", "abc,bd->adc", "ab,ac->bc"],
    "dims": [(2, 1), (3, 1, 2), (2, 3, 4, 1)],
    "fill_mode": ["constant", "reflect", "wrap", "nearest"],
    "function": [mixing],
    "merge_mode": ["sum", "mul", "ave", None],
    "RandomFlip.mode": ["horizontal", "vertical"],
    "STFTSpectrogram.mode": ["magnitude", "psd", "real", "imag", "angle", "stft"],
    "mode": [],
    "noise_shape": [(1, 4), (None, 4), (None, 1), (3, 4)],
    "oov_method": [],
    "oov_token": [],
    "output_mode": ["one_hot", "multi_hot", "count", "tf_idf", "int"],
    "padding": ["valid", "same", "causal"],
    "recurrent_activation": [mixing],
    "recurrent_dropout": [0.5],
    "scaling": ["spectrum", None],
    "score_mode": ["concat"],
    "shared_axes": [(1,), (1, 2)],
    "split": ["character", None, mixing],
    "standardize": ["lower", None, mixing],
    "summation_method": ["minoring", "majoring"],
    "target_shape": [(4,), (2, -1), (-1,)],
    "top_k": [2],
    "use_cudnn": [False],
    "vocabulary_dtype": [],
    "window": ["hamming", None],
}
# What no result of a row depends on, or what is a part of its own.
_FREE = (
    "self", "args", "kwargs", "name", "dtype", "seed", "trainable", "layer", "backward_layer", "cell",
    "cells", "mask", "weights", "layers", "value_range", "reverse_dtype", "reduction", "fn",
)  # fmt: skip
_FREE_ENDS = ("_initializer", "_regularizer", "_constraint")


class Arguments(NamedTuple):
    """Arguments of an object.

    Attributes:
        values: The arguments by name.
        are_usual: Whether no argument with a default has another value.
    """

    values: dict[str, Any]
    are_usual: bool


def arguments_of(cls: type) -> Iterator[Arguments]:
    """Yield arguments for an object of this class: the usual ones, then each argument with other values."""
    yield Arguments(_base(cls), are_usual=True)
    for name, parameter in inspect.signature(cls.__init__).parameters.items():
        if name not in _FREE and not name.endswith(_FREE_ENDS):
            for value in _values(cls, name, parameter.default):
                yield Arguments({**_base(cls), name: value}, parameter.default is parameter.empty)


def _base(cls: type) -> dict[str, Any]:
    parameters = inspect.signature(cls.__init__).parameters
    needed = [name for name, parameter in parameters.items() if parameter.default is parameter.empty]
    base = {name: _REQUIRED[name] for name in needed if name in _REQUIRED}
    seed = {"seed": 3} if "seed" in parameters else {}
    return {**base, **seed, **_wrapped(cls), **_OF_CLASS.get(cls.__name__, {})}


def _wrapped(cls: type) -> dict[str, Any]:
    layers = keras.layers
    samples = {
        "Bidirectional": lambda: {"layer": layers.LSTM(4)},
        "RNN": lambda: {"cell": layers.LSTMCell(4)},
        "SpectralNormalization": lambda: {"layer": layers.Dense(4)},
        "StackedRNNCells": lambda: {"cells": [layers.LSTMCell(4), layers.LSTMCell(4)]},
        "TimeDistributed": lambda: {"layer": layers.Dense(4)},
    }
    return samples[cls.__name__]() if cls.__name__ in samples else {}


def _values(cls: type, name: str, default: Any) -> Sequence[Any]:
    for key in (f"{cls.__name__}.{name}", name):
        if key in _VALUES:
            return [value for value in _VALUES[key] if value != default]
    if isinstance(default, bool):
        return [not default]
    if default is None:
        return [0, True, (0,), mixing]
    if isinstance(default, str):
        raise LookupError(f"Add the values of the string {name!r} of {cls.__name__} to _VALUES.")
    return []
