"""The strategies take the arguments of their namesakes in ``tf.distribute``."""

import runpy

from paths import ROOT

COMPARED = runpy.run_path(str(ROOT / "tests" / "versions" / "drop_in.py"))


def test_the_arguments_are_those_of_the_installed_tensorflow():
    assert COMPARED["all_differences"]() == []
