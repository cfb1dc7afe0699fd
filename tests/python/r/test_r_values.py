"""What reticulate would change on the way to R, and what stands for values that only R has."""

import numpy as np
import pytest

from tfdistr.clusters.local.local_cluster import describe_local_cluster
from tfdistr.errors import ArgumentError, ClusterConfigError
from tfdistr.r.messages import in_r
from tfdistr.r.values import for_r, refuse_unknown, seed_of_r
from tfdistr.rendezvous.config import tf_config
from tfdistr.utils.arguments import check_bool, check_choice, check_int, check_optional_path, check_positive
from tfdistr.utils.describe import ValueOfR, describe

NA = ValueOfR("NA")


def same(one, other) -> bool:
    return type(one) is type(other) and (one.dtype, one.tolist()) == (other.dtype, other.tolist())


@pytest.mark.parametrize(("seed", "of_r"), [(0, 0), (2**31 - 1, 2**31 - 1), (2**31, 0), (2**32 - 1, -1)])
def test_seeds_of_r_are_signed(seed, of_r):
    assert seed_of_r(seed) == of_r


@pytest.mark.parametrize(
    ("value", "in_r_it_is"),
    [
        (3, 3), (-(2**31) + 1, -(2**31) + 1), (-(2**31), -(2.0**31)), (2**31, 2.0**31), (2**53, 2.0**53),
        (True, True), (None, None), ("a", "a"), (0.5, 0.5), (np.int64(2**40), 2.0**40),
        ({"seed": 2**32 - 1, "parts": (1, [2**31])}, {"seed": 2.0**32 - 1, "parts": (1, [2.0**31])}),
    ],
)  # fmt: skip
def test_whole_numbers_become_what_r_has(value, in_r_it_is):
    made = for_r(value)
    assert made == in_r_it_is
    assert repr(made) == repr(in_r_it_is)


def test_the_number_that_is_na_in_r_becomes_a_double():
    assert same(for_r(np.array([-(2**31), 1], np.int32)), np.array([-(2.0**31), 1.0]))
    for array in (np.array([-(2**31) + 1, 1], np.int32), np.array([2**53, 1]), np.zeros((0, 2), "int64")):
        assert for_r(array) is array


def test_bytes_become_text_if_they_are_text():
    assert same(for_r(np.array([["é".encode(), b"b"]])), np.array([["é", "b"]], object))
    assert same(for_r(np.array([b"a", "b", None], object)), np.array(["a", "b", None], object))
    for array in (np.array([b"\xff", b"a"], object), np.array(["a"], object), np.array([0.5])):
        assert for_r(array) is array


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (2**53 + 1, "9007199254740993"), (-(2**60), "-1152921504606846976"),
        ({"a": np.array([1, 2**53 + 1])}, "9007199254740993"),
        (np.array([2**64 - 1], np.uint64), "18446744073709551615"),
    ],
)  # fmt: skip
def test_whole_numbers_that_r_does_not_have_are_an_error(value, shown):
    with pytest.raises(ArgumentError) as caught:
        for_r(value)
    assert caught.value.message == "R cannot represent a whole number of the result above 2^53."
    assert caught.value.received == shown
    assert caught.value.fix == "Read the result in Python, or make the model return smaller numbers or text."


@pytest.mark.parametrize(
    ("check", "rule"),
    [
        (lambda: check_bool("shuffle", NA), "`shuffle` must be true or false."),
        (lambda: check_int("epochs", NA), "`epochs` must be a whole number of at least 1."),
        (lambda: check_positive("rate", NA), "`rate` must be a number above 0."),
        (lambda: check_choice("mode", NA, ("a", "b")), "`mode` must be one of 'a', 'b'."),
        (lambda: check_optional_path("run_dir", NA), "`run_dir` must be a path."),
        (lambda: describe_local_cluster(2, env={"A": NA}), "`env` must give A a value that is text."),
    ],
)
def test_every_check_refuses_na_with_its_own_rule(check, rule):
    with pytest.raises(ArgumentError) as caught:
        check()
    assert (caught.value.message, caught.value.received) == (rule, "NA")


def test_tf_config_refuses_na():
    with pytest.raises(ClusterConfigError) as caught:
        tf_config(worker=["a:1", NA])
    assert caught.value.message.startswith("`cluster.worker[1]` must be text, a finite number,")
    assert caught.value.received == "NA"


def test_messages_show_the_words_of_r():
    assert describe(ValueOfR("an object of class Date")) == "an object of class Date"
    assert in_r(repr([1, NA])) == "c(1, NA)"
    assert in_r(repr({"0": 1.0, "1": NA})) == 'list("0" = 1, "1" = NA)'
    assert in_r(repr([NA, "a", 1])) == 'list(NA, "a", 1)'


@pytest.mark.parametrize("value", [5, True, "", b"a"])
def test_what_is_no_path_is_refused(value):
    with pytest.raises(ArgumentError) as caught:
        check_optional_path("output", value)
    assert caught.value.message == "`output` must be a path."
    assert caught.value.received == repr(value)
    assert caught.value.fix == 'Pass output="results", for example.'


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("epoch", "Write epochs."),
        ("corse", "Write cores."),
        ("zzz", "Correct the name. Its arguments are x, epochs, cores."),
    ],
)
def test_an_unknown_argument_of_an_r_function(name, fix):
    with pytest.raises(ArgumentError) as caught:
        refuse_unknown("distributed_fit", name, ["x", "epochs", "cores"])
    assert str(caught.value).splitlines() == [
        f"distributed_fit() has no argument `{name}`.", f"Received: {name}", f"Fix: {fix}",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("workers", "Pass cluster=local_cluster(workers=2)."),
        ("validation_data", "Pass validation_split=0.2."),
        ("weights", "Pass sample_weight=weights."),
        ("max_restarts", "Correct the name."),  # the function has no `failures`
    ],
)
def test_an_argument_that_is_a_part_of_another_or_has_another_name(name, fix):
    known = ["cluster", "validation_split", "sample_weight", "loss_weights"]
    with pytest.raises(ArgumentError) as caught:
        refuse_unknown("tfdistr_mlp", name, known)
    assert caught.value.fix.startswith(fix)
