"""The values of variables and optimizers, on one worker and gathered from all workers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.checkpoint.folder import Array, arrays_in, bytes_of, dtype_of
from tfdistr.collectives.interface import Collectives
from tfdistr.errors import ArgumentError, JobMismatchError

_WORD = 8  # bytes of an integer; arrays are sent as integers, because sums with zeros keep all bits


def gather(collectives: Collectives | None, own: Sequence[Array], texts: Sequence[bytes]) -> dict[str, Array]:
    """Gather the arrays of the workers. All workers must call it.

    Args:
        collectives: Exchanges tensors; None if this is the only worker.
        own: This worker's arrays. Number, shapes and types must be the same on all workers.
        texts: Further bytes. The number must be the same on all workers; lengths may differ.

    Returns:
        Arrays for ``parts_of``. If all workers have the same array, its key is its number. Otherwise the key
        is the number and "each", and the array has one row for each worker.
    """
    arrays = [*own, *(np.frombuffer(text, np.uint8) for text in texts)]
    if collectives is None:
        return {str(number): array for number, array in enumerate(arrays)}
    lengths = [len(text) for text in texts]
    described = np.array([*map(_digest, arrays), *lengths], np.int64)
    table = _all(collectives, described).reshape(collectives.num_workers, -1)
    differ = [n for n in range(len(arrays)) if (table[:, n] != table[0, n]).any()]
    gathered = {str(number): array for number, array in enumerate(arrays)}
    if not differ:
        return gathered
    first_text = len(own)
    longest = {first_text + i: int(table[:, len(arrays) + i].max()) for i in range(len(texts))}
    padded = {n: _filled(gathered.pop(str(n)), longest.get(n)) for n in differ}
    words = _words(np.concatenate([bytes_of(array) for array in padded.values()]))
    each = _all(collectives, words).reshape(collectives.num_workers, -1).view(np.uint8)
    start = 0
    for number, array in padded.items():
        parts = np.ascontiguousarray(each[:, start : start + array.nbytes])
        gathered[f"{number} each"] = parts.view(array.dtype).reshape(-1, *array.shape)
        start += array.nbytes
    return gathered


def share(
    collectives: Collectives | None, arrays: dict[str, Array] | None, text: str
) -> tuple[str, dict[str, Array]]:
    """Send the chief's arrays and text to all workers. All workers must call it."""
    if collectives is None:
        return text, dict(arrays or {})
    kinds = [[name, array.dtype.name, array.shape] for name, array in (arrays or {}).items()]
    told = json.loads(collectives.text_of_chief(json.dumps({"text": text, "arrays": kinds})))
    shared: dict[str, Array] = {}
    for name, kind, shape in told["arrays"]:
        dtype = dtype_of(kind)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if collectives.index == 0:
            assert arrays is not None
            words = _words(bytes_of(arrays[name]))
        else:
            words = np.zeros(-(-size // _WORD), np.int64)
        if size:
            words = collectives.broadcast(tf.constant(words)).numpy()
        shared[name] = words.view(np.uint8)[:size].view(dtype).reshape(shape)
    return told["text"], shared


class ArrayPart(NamedTuple):
    """One worker's part of an array from ``gather``.

    Attributes:
        own: The array of this worker.
        borrowed: Whether it is another worker's array, because there were fewer workers then.
        left: The arrays of workers that no longer exist; only the chief gets them.
        alike: Whether all workers had the same array.
    """

    own: Array
    borrowed: bool = False
    left: Array | None = None
    alike: bool = False


def parts_of(arrays: dict[str, Array], worker: int, num_workers: int, before: int) -> list[ArrayPart]:
    """Return the parts of one worker, in arrays that ``gather`` made when there were ``before`` workers."""
    gone = max(0, before - num_workers) if worker == 0 else 0
    numbered = {int(name.split()[0]): (name, array) for name, array in arrays.items()}
    parts = []
    for name, array in (numbered[number] for number in sorted(numbered)):
        if not name.endswith("each"):
            left = np.broadcast_to(array, (gone, *array.shape)) if gone else None
            parts.append(ArrayPart(array, worker >= before, left, alike=True))
        elif worker < before:
            parts.append(ArrayPart(array[worker], left=array[num_workers:] if gone else None))
        else:
            parts.append(ArrayPart(array[0], borrowed=True))
    return parts


def check_same(collectives: Collectives | None, model: keras.Model) -> None:
    """Check that all workers have the same weights. All workers must call it, and raise the same error."""
    if collectives is None:
        return
    whole = hashlib.sha256()
    for variable in model.trainable_variables:
        whole.update(bytes_of(_parts(variable.value)[0].read_value().numpy()).data)
    found = _all(collectives, np.array([_number(whole.digest())], np.int64))
    other = [worker for worker, digest in enumerate(found) if digest != found[0]]
    if other:
        raise JobMismatchError(
            "The workers start with different weights.",
            received=f"other weights than those of worker 0 on {', '.join(f'worker {w}' for w in other)}",
            fix="Remove code that changes weights before training on some workers only, such as a callback.",
        )


def _all(collectives: Collectives, own: Array) -> Array:
    gathered: Array = collectives.all_gather(tf.constant(own), 0).numpy()
    return np.ascontiguousarray(gathered)


def _digest(array: Array) -> int:
    return _number(hashlib.sha256(bytes_of(array).data).digest())


def _number(digest: bytes) -> int:
    return int.from_bytes(digest[:_WORD], "little", signed=True)


def _words(content: Array) -> Array:
    filled: Array = np.concatenate([content, np.zeros(-len(content) % _WORD, np.uint8)])
    return filled.view(np.int64)


def _filled(array: Array, length: int | None) -> Array:
    """Pad an array of bytes to ``length`` with blanks, which JSON ignores; other arrays are unchanged."""
    if length is None:
        return array
    return np.concatenate([array, np.full(length - len(array), ord(" "), np.uint8)])


def pack(arrays: Sequence[Array]) -> tuple[list[Any], bytes]:
    """Return the kinds of arrays, and the bytes of all arrays."""
    kinds = [[array.dtype.name, list(array.shape)] for array in arrays]
    return kinds, b"".join(bytes_of(array).tobytes() for array in arrays)


def unpack(kinds: Sequence[Any], content: Array) -> list[Array]:
    """Return the arrays from which ``pack`` made this content."""
    return list(arrays_in(kinds, content))


class Variable(NamedTuple):
    """A variable of one worker.

    Attributes:
        is_part: Whether the worker has a part of a sum over the workers, as for metrics.
    """

    name: str
    own: tf.Variable
    is_part: bool = False


def variables_of(model: keras.Model) -> list[Variable]:
    """This worker's parts of all variables in the training of a built model, each with a name."""
    optimizers = [v for optimizer in tf_internals.optimizers_of(model) for v in optimizer.variables]
    generators = [*tf_internals.seed_generators(model), tf_internals.global_seed_generator()]
    seeds = [generator.state for generator in generators]
    found = [*model.variables, *model.metrics_variables, *optimizers, *seeds]
    unique = list({id(variable): variable for variable in found}.values())
    named = [(variable.path, variable.value) for variable in unique]
    is_common = getattr(model.distribute_strategy.extended, "is_common", lambda value: False)
    return [
        Variable(name, own, _is_sum(value) and not is_common(value))
        for name, value in named
        for own in _parts(value)
    ]


def values_of(variables: Sequence[Variable]) -> list[Array]:
    """Return the values of variables."""
    return [variable.own.read_value().numpy() for variable in variables]


def all_finite(value: Array) -> bool:
    """Return whether all numbers of an array are finite."""
    return value.dtype.kind in "iub" or bool(np.isfinite(value).all())


def assign(variables: Sequence[Variable], values: Sequence[ArrayPart]) -> None:
    """Assign the values of a checkpoint to variables.

    If there are fewer workers now, the chief also gets the parts of the missing workers. If there are more,
    the new workers start with no part, and with new random numbers.
    """
    wrong = []
    if len(variables) != len(values):
        wrong = [f"{len(variables)} variables, where the checkpoint has {len(values)}"]
    for variable, part in zip(variables, values, strict=False):
        kind = _kind(variable.own.shape, variable.own.dtype.name)
        other = _kind(part.own.shape, part.own.dtype.name)
        if kind != other:
            wrong.append(f"{variable.name} of {kind}, where the checkpoint has {other}")
    if wrong:
        raise other_model(wrong[0])
    for variable, part in zip(variables, values, strict=True):
        if part.borrowed and (variable.is_part or (variable.own.dtype.is_integer and not part.alike)):
            continue
        value = part.own
        if variable.is_part and part.left is not None:
            value = value + part.left.sum(0, dtype=value.dtype)
        variable.own.assign(tf.constant(value))


def other_model(received: str) -> ArgumentError:
    """Return the error that the checkpoint is of another model."""
    return ArgumentError(
        "Cannot resume: the model differs from the saved run.",
        received=received,
        fix="Pass the `model` function of the run, or start a new run in another `run_dir`.",
    )


def _parts(value: object) -> list[tf.Variable]:
    return list(value.values) if isinstance(value, tf.distribute.DistributedValues) else [value]


def _is_sum(value: Any) -> bool:
    distributed = isinstance(value, tf.distribute.DistributedValues)
    return distributed and value.aggregation == tf.VariableAggregation.SUM


def _kind(shape: Any, dtype: str) -> str:
    return f"{dtype} {tuple(shape)}"


def trained_by(model: keras.Model, *, strict: bool = True) -> list[list[int] | None]:
    """Return the numbers of the variables that each optimizer trains, among those of the model."""
    return [trained(model, optimizer, strict=strict) for optimizer in tf_internals.optimizers_of(model)]


def trained(
    model: keras.Model, optimizer: keras.optimizers.Optimizer, *, strict: bool = False
) -> list[int] | None:
    """Return them for one optimizer; None if it was not used, or trains others and this is not ``strict``."""
    if not optimizer.built:
        return None
    numbers = {id(variable): number for number, variable in enumerate(model.variables)}
    variables = tf_internals.trained_variables(optimizer)
    strange = [variable.path for variable in variables if id(variable) not in numbers]
    if strange and strict:
        raise ArgumentError(
            "Cannot save the state of an optimizer that trains variables outside the model.",
            received=f"{', '.join(strange)}, not in {type(model).__name__}.variables",
            fix="Make the layers with these variables attributes of the model.",
        )
    return None if strange else [numbers[id(variable)] for variable in variables]


def build_optimizers(model: keras.Model, trained: Sequence[Sequence[int] | None]) -> None:
    """Make the variables of optimizers that were not used yet, from the result of ``trained_by``."""
    variables = model.variables
    for optimizer, numbers in zip(tf_internals.optimizers_of(model), trained, strict=False):
        if numbers is None or optimizer.built or max(numbers, default=0) >= len(variables):
            continue  # a different model is detected when the values are compared
        with model.distribute_strategy.scope():
            optimizer.build([variables[number] for number in numbers])
