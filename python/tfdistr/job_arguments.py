"""The arguments of ``distributed_fit()``: what they must be, and the job that they describe."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from tfdistr.arguments import COMMUNICATION, GRADIENT_DTYPES, flag, one_of, optional_whole, positive, whole
from tfdistr.data.source import Arrays, Source, make_source
from tfdistr.datasets import Dataset
from tfdistr.errors import ArgumentError
from tfdistr.job import Job, Named
from tfdistr.recovery.options import Recovery
from tfdistr.scaling import learning_rate_factor
from tfdistr.scaling import steps_per_epoch as count_steps
from tfdistr.strategies import check_exchange

_LARGEST_SEED = 2**32 - 1  # that NumPy takes


def make_job(
    model: Any,
    x: Any,
    y: Any = None,
    *,
    num_workers: int,
    batch_size: Any = 32,
    per_worker_batch_size: Any = None,
    epochs: Any = 1,
    steps_per_epoch: Any = None,
    validation_data: Any = None,
    validation_steps: Any = None,
    callbacks: Any = None,
    class_weight: Any = None,
    sample_weight: Any = None,
    seed: Any = None,
    shuffle: Any = True,
    drop_remainder: Any = False,
    scale_learning_rate: Any = "none",
    warmup_epochs: Any = 0,
    communication: Any = "auto",
    gradient_dtype: Any = "float32",
    strategy: str = "multi_worker_mirrored",
    options: Mapping[str, Any] | None = None,
    recovery: Recovery | None = None,
    start_timeout: Any = None,
    heartbeat_timeout: Any = 30.0,
    step_timeout: Any = None,
) -> Job:
    """Check the arguments of ``distributed_fit()`` and make a job for ``num_workers`` workers of them.

    The strategy and its options were checked by ``destination()``, ``recovery`` by ``check_recovery()``.
    """
    is_model = hasattr(model, "get_weights") and not isinstance(model, type)  # a model can be called, too
    if is_model or not (callable(model) or isinstance(model, Named)):
        raise ArgumentError(
            "`model` must be a function without arguments that builds and compiles a model.",
            received=f"{type(model).__module__}.{type(model).__name__}",
            fix="Put the code that makes the model into a function: every worker calls it.",
        )
    if per_worker_batch_size is not None:
        if batch_size not in (32, None):
            raise ArgumentError(
                "Give `batch_size` (of all workers together) or `per_worker_batch_size`, not both.",
                received=f"batch_size={batch_size!r}, per_worker_batch_size={per_worker_batch_size!r}",
                fix="Leave one of them out.",
            )
        batch_size = whole("per_worker_batch_size", per_worker_batch_size) * num_workers
    if class_weight is not None and sample_weight is not None:
        raise ArgumentError(
            "Give `class_weight` or `sample_weight`, not both: Keras takes one of them.",
            received="class_weight and sample_weight",
            fix="Multiply the weight of each example by that of its class, and pass it as sample_weight.",
        )
    check_exchange(strategy, communication, gradient_dtype)
    factor = learning_rate_factor(num_workers, scale_learning_rate, name="scale_learning_rate")
    epochs = whole("epochs", epochs)
    data = x if isinstance(x, Named) else make_source(x, y, sample_weight)
    validation = _validation(validation_data)
    if batch_size is None and any(isinstance(source, Arrays | Dataset) for source in (data, validation)):
        raise ArgumentError(
            "`batch_size` may be None only where functions return batches.",
            received="batch_size=None, and arrays or a data set",
            fix="Pass batch_size=32, for example.",
        )
    batch_size = optional_whole("batch_size", batch_size)
    return Job(
        model=model,
        data=data,
        validation=validation,
        callbacks=_check_callbacks(callbacks),
        batch_size=batch_size,
        epochs=epochs,
        steps_per_epoch=optional_whole("steps_per_epoch", steps_per_epoch),
        validation_steps=optional_whole("validation_steps", validation_steps),
        class_weight=_check_class_weight(class_weight),
        seed=_seed(seed),
        seed_given=seed is not None,
        shuffle=flag("shuffle", shuffle),
        drop_remainder=_check_drop_remainder(drop_remainder, data, batch_size),
        learning_rate_factor=factor,
        warmup_epochs=_check_warmup_epochs(warmup_epochs, epochs, scale_learning_rate),
        strategy=strategy,
        options=dict(options or {}),
        communication=one_of("communication", communication, COMMUNICATION),
        gradient_dtype=one_of("gradient_dtype", gradient_dtype, GRADIENT_DTYPES),
        recovery=recovery or Recovery(),
        start_timeout=300.0 if start_timeout is None else _seconds("start_timeout", start_timeout),
        heartbeat_timeout=_seconds("heartbeat_timeout", heartbeat_timeout),
        step_timeout=None if step_timeout is None else _seconds("step_timeout", step_timeout),
    )


def _seconds(name: str, value: Any) -> float:
    return positive(name, value, of=" of seconds", example="60.0")


def _seed(seed: Any) -> int:
    if seed is None:
        return random.SystemRandom().randrange(2**31)
    return whole("seed", seed, minimum=0, maximum=_LARGEST_SEED)


def _check_drop_remainder(drop: Any, data: Any, batch_size: int | None) -> bool:
    if not flag("drop_remainder", drop):
        return False
    if batch_size is None:
        raise ArgumentError(
            "`drop_remainder` is for batches that tfdistr makes.",
            received="batch_size=None (the function makes batches)",
            fix="Drop the remainder in the function: dataset.batch(size, drop_remainder=True).",
        )
    if isinstance(data, Arrays):
        count_steps(data.examples, batch_size, drop_remainder=True)
    return True


def _check_warmup_epochs(warmup: Any, epochs: int, scale: str) -> int:
    number = whole("warmup_epochs", warmup, minimum=0)
    if number and scale == "none":
        raise ArgumentError(
            "`warmup_epochs` is for a learning rate that is scaled.",
            received=f'warmup_epochs={number}, scale_learning_rate="none"',
            fix='Pass scale_learning_rate="linear" or "sqrt" too, or leave `warmup_epochs` out.',
        )
    if number > epochs:
        raise ArgumentError(
            "`warmup_epochs` must be at most `epochs`, or the learning rate would not reach its value.",
            received=f"warmup_epochs={number}, epochs={epochs}",
            fix=f"Pass warmup_epochs={epochs} or less, or more epochs.",
        )
    return number


def _validation(data: Any) -> Source | Named | None:
    if data is None or isinstance(data, Named):
        return data
    if isinstance(data, tuple | list):  # Keras takes either
        if not 1 <= len(data) <= 3:
            raise ArgumentError(
                "`validation_data` must be (x, y) or (x, y, sample_weight) if it is a tuple or a list.",
                received=f"a {type(data).__name__} of {len(data)}",
                fix="Pass validation_data=(x_val, y_val).",
            )
        return make_source(*data, name="validation_data")
    return make_source(data, name="validation_data")


def _check_callbacks(callbacks: Any) -> Any:
    if callbacks is None or callable(callbacks) or isinstance(callbacks, Named | list | tuple):
        return callbacks
    if hasattr(callbacks, "on_epoch_end"):
        return [callbacks]
    raise ArgumentError(
        "`callbacks` must be a list of Keras callbacks, or a function that returns one.",
        received=f"{type(callbacks).__module__}.{type(callbacks).__name__}",
        fix="Pass callbacks=[keras.callbacks.EarlyStopping()], for example.",
    )


def _check_class_weight(weights: Any) -> dict[int, float] | None:
    if weights is None:
        return None
    try:
        checked = {int(label): float(weight) for label, weight in dict(weights).items()}
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            "`class_weight` must map the numbers of classes to weights.",
            received=repr(weights),
            fix="Pass class_weight={0: 1.0, 1: 2.0}, for example.",
        ) from error
    return checked or None
