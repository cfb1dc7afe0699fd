"""Cases that XLA compiles: whole steps on one worker, what lies between the exchanges on several."""

import keras
import numpy as np
from case import SENTENCES, Y, case, examples
from cases_of_models import IDS
from cases_of_own_steps import DATA, Clipped
from models import IN_A_CONDITION, compiled, dense, layers, optimizers

IMAGES = (np.random.default_rng(2).normal(size=(101, 8, 8, 1)).astype("float32"), Y[:101])


def words(*parts: layers.Layer) -> keras.Model:
    model = keras.Sequential([keras.Input((6,), dtype="int32"), *parts, layers.Dense(2)])
    return compiled(model, jit_compile=True)


@case
def jit_compile():
    return dense(jit_compile=True)


@case(data=examples(97), not_mirrored=IN_A_CONDITION)
def jit_compile_of_several_steps():
    return dense(jit_compile=True, steps_per_execution=2)


@case(data=IMAGES)
def jit_compile_of_convolutions():
    parts = [layers.Conv2D(4, 3, activation="relu"), layers.MaxPooling2D(2), layers.Flatten()]
    model = keras.Sequential([keras.Input((8, 8, 1)), *parts, layers.Dense(2)])
    return compiled(model, jit_compile=True)


@case(data=SENTENCES)
def jit_compile_of_an_lstm():
    embedding = layers.Embedding(20, 4, mask_zero=True)
    return words(embedding, layers.LSTM(6))


@case(data=(IDS, Y[:97]))
def jit_compile_of_a_large_table():
    return words(layers.Embedding(50_000, 4), layers.Flatten())


@case(**DATA)
def jit_compile_of_an_own_step():
    model = Clipped()
    model.compile(optimizers.SGD(0.05), "mse", jit_compile=True)
    return model
