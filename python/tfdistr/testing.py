"""``assert_same_fit()``: a test that a model gives the same result on any number of workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from tfdistr.clusters.local.local_cluster import local_cluster
from tfdistr.fit import distributed_fit
from tfdistr.jobs.result import FitResult
from tfdistr.same_fit.plan import Plan, plan_same_fit
from tfdistr.training.model_copies.given_model import as_model_factory

if TYPE_CHECKING:
    import keras


def assert_same_fit(
    model: Callable[[], keras.Model] | keras.Model,
    x: Any,
    y: Any = None,
    *,
    workers: Iterable[int] = (1, 2),
    tolerance: float | None = None,
    **arguments: Any,
) -> list[FitResult]:
    """Test whether a model gives the same result on any number of workers.

    The model is trained with ``distributed_fit()`` on ``local_cluster(n)`` for each number of workers. One
    worker, too, is a process of its own: all trainings then have the same environment, and this process keeps
    its random numbers. The weights, all variables of the optimizer, the history and the outputs for the first
    batch are compared with those of the lowest number of workers.

    If they differ, the lowest number of workers trains again: do its results repeat? The reason is what the
    fit itself knows (``fit.params["differences"]``). If it knows none, the first step that differs is named.

    Args:
        model: Function without arguments that builds and compiles the model, or a compiled model, which is
            not changed: each training has a copy.
        x: Inputs, as for ``distributed_fit()``.
        y: Targets, where ``x`` is arrays.
        workers: At least two different numbers of workers.
        tolerance: The largest difference that is allowed: absolute for values up to 1, else relative to the
            largest value of the array. By default 1e-6, or 0 with ``virtual_workers``: the same bits. The
            outputs may differ by 10 times as much, because the differences of the weights add up in them.
        arguments: Further arguments of ``distributed_fit()``, such as ``epochs``. The default of ``seed`` is
            1, that of ``verbose`` is 0.

    Returns:
        The results, in the order of the number of workers.

    Raises:
        AssertionError: The results differ. The message names the first difference, the first epoch whose
            history differs, the reason, and the fix. It says "Reason" if the check of the first batch or a
            further training has shown it, else "Likely reason".
        ArgumentError: An argument is not of the form above.
        ClusterStartError: The workers could not be started or did not find each other.
        WorkerFailedError: The training failed; the message says on how many workers.

    Example:
        >>> from tfdistr.testing import assert_same_fit
        >>> def model(*layers):
        ...     first = [keras.layers.Rescaling(1 / 16), keras.layers.Flatten()]
        ...     model = keras.Sequential([*first, *layers, keras.layers.Dense(10, "softmax")])
        ...     model.compile("sgd", "sparse_categorical_crossentropy")
        ...     return model
        >>> digits = tfdistr.load_dataset("digits", "test")
        >>> [fit.params["workers"] for fit in assert_same_fit(model, digits)]
        [1, 2]

        A layer that draws random numbers:

        >>> with_dropout = lambda: model(keras.layers.Dropout(0.5, name="drop"))
        >>> try:
        ...     assert_same_fit(with_dropout, digits)
        ... except AssertionError as error:
        ...     print(str(error).splitlines()[-1])
        Fix: Pass virtual_workers=2: the numbers then do not depend on the number of workers.
        >>> _ = assert_same_fit(with_dropout, digits, virtual_workers=2)

        A layer that normalizes with the rows of its worker:

        >>> try:
        ...     assert_same_fit(lambda: model(keras.layers.BatchNormalization()), digits)
        ... except AssertionError as error:
        ...     print(str(error).splitlines()[-1])
        Fix: Use BatchNormalization(synchronized=True), or pass virtual_workers=2.
    """
    plan = plan_same_fit(model, workers, tolerance, arguments)
    model, fits = as_model_factory(model), []

    def train(number: int, given: dict[str, Any]) -> FitResult:
        fits.append(distributed_fit(model, x, y, cluster=local_cluster(number), **given))
        return fits[-1]

    def predict(place: int) -> Any:
        return fits[place].predict(x, batch_size=arguments.get("batch_size"), steps=1)

    message = compare_fits(plan, train, predict)
    if message is not None:
        raise AssertionError(message)
    return fits


def compare_fits(
    plan: Plan, train: Callable[[int, dict[str, Any]], FitResult], predict: Callable[[int], object]
) -> str | None:
    """Train as planned, and return the message about the first difference, or None."""
    fits = [train(number, plan.arguments) for number in plan.workers]
    outputs = [predict(place) for place in range(len(fits))]
    return plan.explained(fits, outputs, train)
