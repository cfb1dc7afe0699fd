"""The strategies take the arguments of their namesakes in ``tf.distribute``."""

from __future__ import annotations

import runpy

import pytest
from paths import ROOT

COMPARED = runpy.run_path(str(ROOT / "tests" / "versions" / "drop_in.py"))


def test_the_arguments_are_those_of_the_installed_tensorflow():
    assert COMPARED["all_differences"]() == []


def stock(cluster_resolver=None, communication_options=None): ...
def swapped(communication_options=None, cluster_resolver=None): ...
def missing(cluster_resolver=None, *, communication=None): ...
def required(cluster_resolver, communication_options=None): ...
def named(cluster_resolver=None, *, communication_options=None): ...
def placed(cluster_resolver=None, communication_options=None, communication=None): ...
def fine(cluster_resolver=None, communication_options=None, *, communication=None): ...


@pytest.mark.parametrize(
    ("ours", "expected"),
    [
        (fine, []),
        (
            swapped,
            [
                "the first arguments are ['communication_options', 'cluster_resolver'], and TensorFlow's are "
                "['cluster_resolver', 'communication_options']"
            ],
        ),
        (
            missing,
            [
                "the first arguments are ['cluster_resolver', 'communication'], and TensorFlow's are "
                "['cluster_resolver', 'communication_options']"
            ],
        ),
        (required, ["cluster_resolver=<class 'inspect._empty'>, and cluster_resolver=None there"]),
        (named, ["communication_options is keyword-only, and positional or keyword there"]),
        (placed, ["communication can be given by place"]),
    ],
)
def test_the_comparison_can_fail(ours, expected):
    parameters = COMPARED["parameters"]
    assert COMPARED["differences"](parameters(ours), parameters(stock)) == expected


def test_an_argument_that_tensorflow_requires_may_have_a_default():
    parameters = COMPARED["parameters"]
    assert COMPARED["differences"](parameters(stock), parameters(required)) == []
