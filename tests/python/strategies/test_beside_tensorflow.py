"""What differs between TensorFlow's ``MirroredStrategy`` and that of tfdistr: the table in docs/loops.md."""

import json

import pytest
from clusters import run_well

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow(reason="trains 30 small models")]

BOUND = 1e-6


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    file = tmp_path_factory.mktemp("beside") / "found.json"
    # Not as a fork, in which TensorFlow's own class has crashed.
    run_well("beside_tensorflow.py", 1, [str(file)], timeout=250, start_warm=False)
    return json.loads(file.read_text())


@pytest.mark.parametrize("case", ["equal shares", "synchronized", "loop"])
def test_both_train_as_one_device(found, case):
    assert found[case]["tensorflow"] < BOUND
    assert found[case]["tfdistr"] < BOUND


@pytest.mark.parametrize(("case", "shown"), [("short batch", 0.003), ("clipping", 0.009)])
def test_tfdistr_alone_trains_as_one_device(found, case, shown):
    assert found[case]["tensorflow"] == pytest.approx(shown, abs=0.0006)
    assert found[case]["tfdistr"] < BOUND


@pytest.mark.parametrize("case", ["batch normalization", "dropout", "clipping in a loop"])
def test_both_differ_from_one_device_in_the_same_way(found, case):
    assert found[case]["tensorflow"] > 0.01
    assert found[case]["both"] == 0


def test_devices_draw_the_same_random_numbers(found):
    assert found["draw alike"] == {"tensorflow": True, "tfdistr": True}


@pytest.mark.parametrize(
    ("case", "tensorflow", "tfdistr"),
    [
        ("accumulation", "RuntimeError", "ArgumentError"),
        ("executions", "InvalidArgumentError", "ArgumentError"),
        ("averages", None, "ArgumentError"),
        ("XLA", "InvalidArgumentError", None),
        ("second strategy", "InvalidArgumentError", None),
    ],
)
def test_what_each_refuses(found, case, tensorflow, tfdistr):
    assert found[case] == {"tensorflow": tensorflow, "tfdistr": tfdistr}
