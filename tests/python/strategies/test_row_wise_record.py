"""The record of the parts of Keras that work row by row, against the installed Keras."""

import json

import keras
import pytest
from keras_layer_rows import LayerOnRows
from keras_rows import differences, proved_parts, recorded_parts
from keras_samples import Masked, floats, mixing

from tfdistr.strategies.exact.row_wise import RECORD
from tfdistr.supported import SUPPORTED

pytestmark = pytest.mark.filterwarnings("ignore")  # layers are tried with masks that they do not support

HOW_TO_RECORD = "After a look at them: .venv/bin/python tests/python/helpers/keras_rows.py --record"


@pytest.mark.slow(reason="tries each layer, loss and metric of Keras")
def test_what_is_recorded_works_with_the_usual_arguments():
    found = proved_parts(with_all_arguments=False)
    wrong = [
        f"{name}: ranks {ranks}, now {found.get(name, 'none')}"
        for name, ranks in recorded_parts().items()
        if not {*ranks.split()} <= {*found.get(name, "").split()}
    ]
    assert wrong == [], HOW_TO_RECORD


@pytest.mark.slow(reason="tries all values of all arguments for a minute; the usual ones are tried above")
@pytest.mark.timeout(600)
def test_the_record_has_what_works_with_all_arguments_that_are_not_refused():
    assert differences(proved_parts()) == [], HOW_TO_RECORD


def test_every_supported_version_is_recorded():
    (first, end) = (int(version.split(".")[1]) for version in SUPPORTED["Keras"])
    recorded = {
        version
        for by_ranks in json.loads(RECORD.read_text()).values()
        for versions in by_ranks.values()
        for version in versions
    }
    assert recorded == {f"3.{minor}" for minor in range(first, end)}


def test_what_mixes_rows_is_not_recorded():
    mix = [
        "layers.BatchNormalization", "layers.CutMix", "layers.Lambda", "layers.MelSpectrogram",
        "layers.MixUp", "layers.RandomCrop", "losses.Circle", "losses.Dice", "losses.Tversky",
        "losses.circle", "losses.dice", "regularizers.OrthogonalRegularizer",
    ]  # fmt: skip
    assert [name for name in mix if name in recorded_parts()] == []


@pytest.mark.parametrize(
    ("layer", "adds_up"),
    [
        (keras.layers.Lambda(mixing), False),
        (keras.layers.Lambda(lambda x: x / keras.ops.cast(keras.ops.shape(x)[0], x.dtype)), False),
        (keras.layers.Lambda(lambda x: keras.ops.sort(x, axis=0)), False),
        (keras.layers.Lambda(lambda x: keras.ops.minimum(x, keras.ops.max(x) / 100)), False),
        (keras.layers.Dropout(0.5, noise_shape=(1, 3, 4), seed=1), False),
        (keras.layers.BatchNormalization(), False),
        (keras.layers.Activation("relu", activity_regularizer=lambda x: keras.ops.sum(x) ** 2), False),
        (keras.layers.Lambda(lambda x: 2 * x), True),
        (keras.layers.Dropout(0.5, seed=1), True),
        (keras.layers.Activation("relu", activity_regularizer="l2"), True),
        (keras.layers.LSTM(4), True),
    ],
)
@pytest.mark.parametrize("inputs", [[floats(3, 4)], Masked([floats(3, 4)])], ids=["plain", "masked"])
def test_a_layer_on_rows(layer, inputs, adds_up):
    assert LayerOnRows(layer, inputs).adds_up() is adds_up
