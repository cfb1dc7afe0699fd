"""The job that the arguments of ``distributed_fit()`` describe."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tfdistr.data.datasets import Dataset
from tfdistr.data.form import Form
from tfdistr.data.order.steps import steps_per_epoch as count_steps
from tfdistr.data.pipeline.batch_objects import GivenDataset, needs_steps
from tfdistr.data.source import Arrays, Source, form_of, gives_batches, make_source
from tfdistr.data.trees import leaves
from tfdistr.errors import ArgumentError
from tfdistr.strategies.virtual import check_virtual_workers
from tfdistr.training.job import Job
from tfdistr.training.per_worker import PerWorker, learning_rate_factor
from tfdistr.utils.arguments import check_fraction
from tfdistr.utils.function_files import FunctionByName

_EXAMPLES = 32  # of a batch, as in Keras


def make_job(
    model: Any,
    x: Any,
    y: Any = None,
    *,
    num_workers: int,
    sample_weight: Any = None,
    validation_data: Any = None,
    validation_split: Any = 0.0,
    batch_size: Any = None,
    seed: Any = None,
    drawn_seed: int | None = None,
    form: Form | None = None,
    **arguments: Any,
) -> Job:
    """Make a job for ``num_workers`` workers from the arguments of ``distributed_fit()``.

    The named arguments are checked together here. The others are fields of `Job`, which checks them.
    """
    batch_size, factor, warmup_epochs = _of_all_workers(batch_size, num_workers)
    data = x if isinstance(x, FunctionByName | Arrays) else make_source(x, y, sample_weight, form=form)
    if (weights := arguments.get("class_weight")) is not None:
        _check_no_weights(sample_weight)
        arguments["class_weight"] = form_of(data).weights(weights)
    data, validation = _split(data, _validation(validation_data, form_of(data)), validation_split)
    if isinstance(data, Arrays) and isinstance(validation, Arrays):
        _check_validation(data, validation)
    batch_size, arguments["validation_batch_size"], in_batches = _sizes(
        data, validation, batch_size, arguments.get("validation_batch_size")
    )
    job = Job(
        model=model,
        data=data,
        validation=validation,
        batch_size=batch_size,
        seed=drawn_seed if seed is None else seed,
        seed_given=seed is not None,
        form=form_of(data) if form is None else form_of(data).or_else(form),
        validates_in_batches=in_batches,
        learning_rate_factor=factor,
        warmup_epochs=warmup_epochs,
        **arguments,
    )
    if job.virtual_workers is not None:
        check_virtual_workers(
            job.virtual_workers, workers=num_workers, batch_size=job.batch_size,
            communication=job.communication,
        )  # fmt: skip
    _check_drop_remainder(job)
    _check_epochs(job)
    if num_workers > 1:
        _check_steps(job)
    return job


def _of_all_workers(batch_size: object, num_workers: int) -> tuple[object, float, int]:
    """Return the size of the global batch, and the factor and the warm-up of its learning rate."""
    if not isinstance(batch_size, PerWorker):
        return batch_size, 1.0, 0
    factor = learning_rate_factor(num_workers, batch_size.scale_learning_rate)
    return batch_size.batch_size * num_workers, factor, batch_size.warmup_epochs


def _sizes(
    data: object, validation: object, batch_size: object, validation_size: object
) -> tuple[Any, Any, bool]:
    """Return both sizes of batches, and whether the validation gives ready batches."""
    if gives_batches(data) and batch_size is not None:
        raise ArgumentError(
            "`batch_size` is for examples; `x` gives batches of their own size.",
            received=f"batch_size={batch_size!r}, and batches",
            fix="Leave the batch size out, or pass data that is not in batches.",
        )
    given = batch_size is not None or validation_size is not None
    validated = data if validation is None else validation  # evaluate() and predict() have one source
    if batch_size is None and _gives_examples(data):
        batch_size = _EXAMPLES
    elif not given and _gives_examples(validation):
        validation_size = _EXAMPLES
    return batch_size, validation_size, not given and not _gives_examples(validated)


def _check_no_weights(sample_weight: object) -> None:
    if sample_weight is not None:
        raise ArgumentError(
            "Give `class_weight` or `sample_weight`, not both: Keras takes one of them.",
            received="class_weight and sample_weight",
            fix="Multiply the weight of each example by that of its class, and pass it as sample_weight.",
        )


def _gives_examples(source: object) -> bool:
    """Return whether data is known to be examples: a function is taken to return batches, as in Keras."""
    return isinstance(source, Arrays | Dataset | GivenDataset) and not gives_batches(source)


def _check_drop_remainder(job: Job) -> None:
    if not job.drop_remainder:
        return
    if job.batch_size is None:
        raise ArgumentError(
            "`drop_remainder` is for batches that tfdistr makes.",
            received="no batch_size, and `x` gives ready batches",
            fix="Drop the remainder where the batches are made: dataset.batch(size, drop_remainder=True).",
        )
    if isinstance(job.data, Arrays):
        count_steps(job.data.examples, job.batch_size, drop_remainder=True)


def _check_steps(job: Job) -> None:
    """Check that the workers will know the number of batches of a generator."""
    of_fit = job.task == "fit"
    given = (("x", job.data, job.steps_per_epoch), ("validation_data", job.validation, job.validation_steps))
    for name, source, steps in given if job.task != "predict" else ():
        if isinstance(source, FunctionByName) and source.generates and steps is None:
            raise needs_steps(name, None if of_fit else "steps")


def _check_epochs(job: Job) -> None:
    if job.initial_epoch >= job.epochs:
        raise ArgumentError(
            "`epochs`, where the training ends, must be after `initial_epoch`, where it begins.",
            received=f"epochs={job.epochs}, after {job.initial_epoch} epochs that are done",
            fix=f"Pass epochs={job.initial_epoch + 1} or more.",
        )
    if job.warmup_epochs > job.epochs:
        raise ArgumentError(
            "`warmup_epochs` must be at most `epochs`, or the learning rate would not reach its value.",
            received=f"warmup_epochs={job.warmup_epochs}, epochs={job.epochs}",
            fix=f"Pass warmup_epochs={job.epochs} or less, or more epochs.",
        )


def _split(
    data: Source | FunctionByName, validation: Source | FunctionByName | None, split: object
) -> tuple[Source | FunctionByName, Source | FunctionByName | None]:
    """Split off the last part of the training arrays for the validation, as Keras does."""
    part = check_fraction("validation_split", split)
    if part == 0:
        return data, validation
    if validation is not None:
        raise ArgumentError(
            "Give `validation_data` or `validation_split`, not both.",
            received=f"validation_data and validation_split={split!r}",
            fix="Leave one of them out.",
        )
    if not isinstance(data, Arrays):
        raise ArgumentError(
            "With `validation_split` `x` must be arrays or a data frame.",
            received="a data set of load_dataset()" if isinstance(data, Dataset) else "a function",
            fix='Pass validation_data, such as load_dataset("digits", "test").',
        )
    training = math.floor(data.examples * (1 - part))
    if training in (0, data.examples):
        raise ArgumentError(
            "`validation_split` must leave at least one example for each part.",
            received=f"validation_split={split!r}, of {data.examples} examples",
            fix="Pass more examples, or validation_data.",
        )
    return data.rows(0, training), data.rows(training, data.examples)


def _check_validation(training: Arrays, validation: Arrays) -> None:
    """Check that the validation has the parts of the training, as far as Keras cannot match them."""
    if len(training.parts) > 1 and len(validation.parts) == 1:
        raise ArgumentError(
            "`validation_data` must have targets, as `x` has.",
            received="inputs without targets",
            fix="Pass validation_data=(x_val, y_val).",
        )
    for name, trained, part in zip(("x", "y"), training.parts, validation.parts, strict=False):
        wanted, found = dict(leaves(trained)), dict(leaves(part))
        of_names = isinstance(trained, Mapping) and isinstance(part, Mapping)
        whole = wanted.keys() <= found.keys() if of_names else len(wanted) == len(found)
        if not whole or any(_kind(found[path]) != _kind(wanted[path]) for path in wanted if path in found):
            raise ArgumentError(
                f"`validation_data` must have the parts of `{name}`.",
                received=f"{_described(name, found)}, where `{name}` has {_described(name, wanted)}",
                fix="Pass validation_data=(x_val, y_val), with the names and types of `x` and `y`.",
            )


def _described(name: str, found: Mapping[str, object]) -> str:
    return ", ".join(f"{name}{path} of {_kind(array)}" for path, array in found.items())


def _kind(array: Any) -> str:
    return "text" if array.dtype.kind in "OSU" else "numbers"


def _validation(data: object, form: Form) -> Source | FunctionByName | None:
    if data is None or isinstance(data, FunctionByName | Arrays):
        return data
    if isinstance(data, tuple | list):  # Keras accepts both
        if not 1 <= len(data) <= 3:
            raise ArgumentError(
                "`validation_data` must be inputs, (x, y), or (x, y, sample_weight).",
                received=f"a {type(data).__name__} of {len(data)}",
                fix="Pass validation_data=(x_val, y_val).",
            )
        return make_source(*data, name="validation_data", form=form)
    return make_source(data, name="validation_data", form=form)
