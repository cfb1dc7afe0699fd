"""How gradients go out in pieces."""

import numpy as np
import pytest
import tensorflow as tf

from tfdistr.collectives.interface import _packs, move_axis


def pack(*tensors: tf.Tensor, size: int) -> list[list[int]]:
    return [[number for number, _ in group] for group in _packs(list(enumerate(tensors)), size)]


def test_small_tensors_go_together_up_to_the_size_of_a_pack():
    assert pack(*[tf.zeros(10)] * 5, size=100) == [[0, 1], [2, 3], [4]]


def test_a_large_tensor_goes_alone():
    assert pack(tf.zeros(1), tf.zeros(100), tf.zeros(1), size=100) == [[0], [1], [2]]


def test_types_are_not_mixed():
    assert pack(tf.zeros(1), tf.zeros(1, tf.float16), tf.zeros(1, tf.float16), size=100) == [[0], [1, 2]]


def test_what_has_no_size_yet_goes_with_others():
    unknown = tf.TensorSpec([None], tf.float32)
    assert pack(tf.zeros(10), unknown, tf.zeros(10), size=80) == [[0, 1, 2]]


def test_nothing_is_no_pack():
    assert pack(size=100) == []


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_an_axis_goes_to_the_front_and_back(axis):
    value = tf.reshape(tf.range(24), [2, 3, 4])
    moved = move_axis(value, axis)
    np.testing.assert_array_equal(moved, np.swapaxes(value.numpy(), 0, axis))
    np.testing.assert_array_equal(move_axis(moved, axis), value)
