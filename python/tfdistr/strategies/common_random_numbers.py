"""Random numbers that several workers draw alike: the orders of datasets, and the data of generators."""

from __future__ import annotations

import json
import os
import random

import numpy as np
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.collectives.interface import Collectives


def draw_alike(collectives: Collectives) -> None:
    """Make all workers draw the same random numbers from now on, those of the chief.

    These are the numbers of Python's ``random`` and of ``numpy.random``, with which generators and Keras make
    and order batches, and those of datasets. One worker without a global seed gets another order from
    ``shuffle(seed=1)``: it depends on TensorFlow's default global seed. This default cannot be the global
    seed here. In functions, such as the function of an ``interleave``, TensorFlow would count the seeds of
    unseeded ops up from 0, and they would repeat in every run.
    """
    _share_state(collectives)
    if tf_internals.global_seed() is None:
        own = str(int.from_bytes(os.urandom(4), "little") >> 1)
        tf.random.set_seed(int(collectives.text_of_chief(own)))


def _share_state(collectives: Collectives) -> None:
    of_numpy = np.random.get_state(legacy=False)
    if of_numpy["bit_generator"] != "MT19937":  # the user has chosen another, and seeds it
        return
    key = of_numpy["state"]["key"]
    of_numpy["state"]["key"] = key.tolist()
    own = json.dumps([random.getstate(), of_numpy])
    chiefs = collectives.text_of_chief(own)
    if chiefs == own:
        return
    (version, numbers, gauss), of_numpy = json.loads(chiefs)
    of_numpy["state"]["key"] = np.array(of_numpy["state"]["key"], key.dtype)
    random.setstate((version, tuple(numbers), gauss))
    np.random.set_state(of_numpy)
