"""Random numbers that are the same for all rows of a batch, to compare a whole batch with a split one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf
from keras.src import backend as _backend
from tensorflow.python.eager import context as _context

from tfdistr.tf_internals.keras_step import overridden

# Functions whose first argument is the shape of their result. (All Keras layers call those of
# `keras.src.backend.random`, which has no public name.)
_OF_KERAS = ("normal", "uniform", "truncated_normal", "randint")
_OF_TENSORFLOW = ("normal", "uniform", "truncated_normal")


class Draws:
    """The seeds of the draws of a step, which depend on the number of the draw alone.

    Attributes:
        by_common_seeds: Whether Keras would draw with its global generator.
    """

    def __init__(self) -> None:
        self._count = 0
        self.by_common_seeds = False

    def restart(self) -> None:
        """Begin a step, which draws the numbers of the step before."""
        self._count = 0

    def next(self) -> int:
        """Return the seed of the next draw."""
        self._count += 1
        return self._count


@contextlib.contextmanager
def alike_for_all_rows(draws: Draws) -> Iterator[None]:
    """Make random layers and ``tf.random`` draw the numbers of one row for all rows, within the context.

    The numbers then depend neither on the number of rows nor on the seeds, which differ between workers.
    Functions with other arguments than a shape, such as ``categorical``, are left as they are.
    """
    keras_random = _backend.random
    with contextlib.ExitStack() as stack:
        for name in _OF_KERAS:
            stack.enter_context(overridden(keras_random, name, _of_keras(getattr(keras_random, name), draws)))
        stack.enter_context(overridden(keras_random, "dropout", _dropout(keras_random.dropout, draws)))
        for name in _OF_TENSORFLOW:
            stateless = getattr(tf.random, f"stateless_{name}")
            for kind in (name, f"stateless_{name}"):
                drawn = _of_tensorflow(stateless, draws, with_seed=kind != name)
                stack.enter_context(overridden(tf.random, kind, drawn))
        yield


def _of_keras(function: Callable[..., object], draws: Draws) -> Callable[..., object]:
    def drawn(shape: object, *args: object, seed: object = None, **kwargs: object) -> Any:
        number = draws.next()
        draws.by_common_seeds = draws.by_common_seeds or seed is None
        return _repeated(lambda row: function(row, *args, seed=number, **kwargs), shape)

    return drawn


def _of_tensorflow(
    stateless: Callable[..., object], draws: Draws, *, with_seed: bool
) -> Callable[..., object]:
    """Wrap a function of ``tf.random``; ``with_seed`` if its second argument is the seed."""

    def drawn(shape: object, *args: object, **kwargs: object) -> Any:
        number = [draws.next(), 0]
        others = args[1:] if with_seed else args
        kwargs.pop("seed", None)
        return _repeated(lambda row: stateless(row, number, *others, **kwargs), shape)

    return drawn


def _dropout(function: Callable[..., Any], draws: Draws) -> Callable[..., object]:
    def dropped(inputs: Any, rate: float, noise_shape: Any = None, seed: Any = None) -> Any:
        given = noise_shape or [None] * inputs.shape.rank
        draws.by_common_seeds = draws.by_common_seeds or seed is None
        row = [inputs.shape[i] or tf.shape(inputs)[i] if n is None else n for i, n in enumerate(given)]
        return function(inputs, rate, [1, *row[1:]], draws.next())

    return dropped


def _repeated(draw: Callable[[Any], tf.Tensor], shape: object) -> tf.Tensor:
    """Draw one row of a shape, and repeat it."""
    if isinstance(shape, tf.Tensor):
        sizes = tf.unstack(shape) if shape.shape.rank else [shape]
    else:
        sizes = list(shape) if isinstance(shape, Iterable) else [shape]
    if not sizes:
        return draw([])
    return tf.repeat(draw([1, *sizes[1:]]), sizes[0], axis=0)


def eager_draws() -> object:
    """Return the state of the numbers that seed TensorFlow's eager operations (`Context._rng`), or None."""
    generator = getattr(_context.context(), "_rng", None)
    return generator.getstate() if generator else None
