"""The differences between the effects of steps."""

import numpy as np
import pytest

from tfdistr.strategies.exact.step_effects import Effects

ONE = np.ones(3, np.float32)
NOT_FINITE = np.array([1.0, np.nan, 1.0], np.float32)


def differences(one: Effects, other: Effects) -> dict[tuple[str, str], float]:
    return {(kind, name): size for kind, name, size in one.differences(other)}


@pytest.mark.parametrize(
    ("other", "size"),
    [(ONE, 0.0), (2 * ONE, 1.0), (NOT_FINITE, np.inf), (None, np.inf), (np.ones(2), np.inf)],
)
def test_a_gradient_that_is_missing_or_not_finite_is_infinitely_far(other, size):
    gradients = {} if other is None else {"0 kernel": other}
    found = differences(Effects({0: {"0 kernel": ONE}}), Effects({0: gradients}))
    assert found == {("gradient", "kernel"): pytest.approx(size)}


def test_numbers_that_are_not_finite_in_both_are_alike():
    found = differences(Effects({0: {"0 kernel": NOT_FINITE}}), Effects({0: {"0 kernel": NOT_FINITE}}))
    assert not found["gradient", "kernel"] > 0


def test_a_gradient_that_is_almost_0_counts_by_the_largest():
    one, other = {"0 a": 100 * ONE, "1 b": 1e-6 * ONE}, {"0 a": 100 * ONE, "1 b": 2e-6 * ONE}
    assert differences(Effects({0: one}), Effects({0: other}))["gradient", "b"] < 1e-6


def test_a_variable_that_only_one_changes_differs_by_its_change():
    before = {"0 count": np.float32(5)}
    found = differences(Effects(variables={"0 count": np.float32(7)}, before=before), Effects(before=before))
    assert found["variable", "count"] == pytest.approx(2 / (2 + 0.07))


def test_logs_that_are_sums_are_found():
    whole = Effects(logs={"sum": np.array(8.0), "mean": np.array(2.0)})
    means = {"sum": np.array(4.0), "mean": np.array(2.0)}
    split = Effects(logs=means, summed={"sum": np.array(8.0), "mean": np.array(4.0)})
    assert whole.sums(split, 1e-6) == {"sum"}
