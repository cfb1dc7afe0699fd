"""XLA under a strategy; test_mirrored.py and test_keras_calls.py look at what it has compiled."""

import keras
import pytest
import tensorflow as tf

import tfdistr
from tfdistr.errors import TfdistrWarning
from tfdistr.strategies.xla import compile_between_exchanges, compiled_by_xla, marked, without_xla


def model(**arguments):
    made = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse", **arguments)
    return made


def marks(made):
    """Whether the operations of a step of the model are marked for XLA."""

    @tf.function
    def step(x):
        with marked(made):
            return tf.tanh(x)

    (tanh,) = (
        o for o in step.get_concrete_function(tf.zeros([2])).graph.get_operations() if o.type == "Tanh"
    )
    return b"_XlaCompile" in tanh.node_def.SerializeToString()


def test_a_step_is_marked_only_if_its_model_asks_for_xla():
    asks, does_not = model(jit_compile=True), model(jit_compile=False)
    for made in (asks, does_not):
        compile_between_exchanges(made, "several workers")
        assert not made.jit_compile  # Keras compiles no step that exchanges
    assert [marks(asks), marks(does_not), marks(None)] == [True, False, False]
    assert [compiled_by_xla(made) for made in (asks, does_not)] == ["between exchanges", "nothing"]


def test_compile_decides_again():
    made = model(jit_compile=True)
    compile_between_exchanges(made, "several workers")
    made.compile("sgd", "mse", jit_compile=False)
    assert not marks(made)


def test_the_session_is_as_before():
    compile_between_exchanges(model(jit_compile=True), "several workers")
    assert not tf.config.optimizer.get_jit()


def test_virtual_workers_train_without_xla_and_say_so():
    made = model(jit_compile=True)
    with pytest.warns(
        TfdistrWarning, match="jit_compile=True is ignored with virtual workers: when XLA compiles"
    ):
        without_xla(made)
    assert compiled_by_xla(made) == "nothing"


@pytest.mark.parametrize("gpus", [0, 1])
def test_auto_means_xla_on_gpus_only(monkeypatch, gpus):
    strategy = tfdistr.MirroredStrategy(["cpu:0"])
    seen = [*tf.config.list_physical_devices("CPU"), *[tf.config.PhysicalDevice("gpu", "GPU")] * gpus]
    monkeypatch.setattr(
        tf.config,
        "list_physical_devices",
        lambda kind=None: [d for d in seen if kind in (None, d.device_type)],
    )
    with strategy.scope():
        assert model(jit_compile="auto").jit_compile == bool(gpus)
        assert model().jit_compile == bool(gpus)
        assert not model(jit_compile=False).jit_compile
    with tf.distribute.OneDeviceStrategy("cpu:0").scope():  # Keras's own answer
        assert not model().jit_compile
