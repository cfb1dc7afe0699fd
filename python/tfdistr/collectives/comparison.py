"""The comparison of values that must be equal on all workers: a difference would hang them later."""

from __future__ import annotations

import contextlib
import json
import sys
import zlib
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from tfdistr import _version
from tfdistr.collectives.interface import Collectives
from tfdistr.collectives.model_parts import describe_types
from tfdistr.errors import JobMismatchError
from tfdistr.rendezvous.mismatch import mismatch
from tfdistr.rendezvous.peer_failure import report
from tfdistr.tf_internals import KerasCall

# Seconds that differing workers wait for each other, so that all of them raise the error.
_ALL_KNOW = 5.0
# The message of a worker that compares values instead of making a variable.
_NO_VARIABLE = "no more variables"
_ARGUMENTS = {
    "fit": ("batch_size", "epochs", "initial_epoch", "steps_per_epoch", "shuffle", "class_weight",
            "validation_split", "validation_steps", "validation_batch_size", "validation_freq"),
    "evaluate": ("batch_size", "steps"),
    "predict": ("batch_size", "steps"),
}  # fmt: skip


def agree(collectives: Collectives, fields: Mapping[str, Any], note: Any = None) -> list[Any]:
    """Compare ``fields`` over the workers. All workers must call this.

    Args:
        collectives: The collectives that exchange the values.
        fields: Values by name; an error shows them. The value None is equal to any value.
        note: Any value that JSON can express. It may differ.

    Returns:
        The notes of all workers.

    Raises:
        JobMismatchError: A field differs: every worker raises the same error. Or the chief makes a variable
            at the moment: then the peers are told.
    """
    _check_no_variable(collectives)
    own = {"fields": {name: None if v is None else str(v) for name, v in fields.items()}, "note": note}
    described = [json.loads(text) for text in collectives.exchange(json.dumps(own))]
    error = mismatch([worker["fields"] for worker in described])
    if error:
        # If the chief exited now, values that the others have not read yet would be lost.
        with contextlib.suppress(tf.errors.OpError):
            collectives.barrier(f"tfdistr/mismatch/{zlib.crc32(str(error).encode())}", _ALL_KNOW)
        raise error
    return [worker["note"] for worker in described]


def check_variable(collectives: Collectives, worker: int, name: str | None, kind: str) -> None:
    """Compare the shape and type of a new variable with the chief's variable.

    Raises:
        JobMismatchError: This worker's variable differs. The peers are told.
    """
    own = f"{name}, {kind}"
    chiefs = collectives.text_of_chief(own)
    if chiefs.rpartition(", ")[2] != kind:  # the numbers in names may differ
        _refuse_variable(collectives, worker, f"a variable {own}", chiefs)


def _check_no_variable(collectives: Collectives) -> None:
    """Check that the chief also compares values, where it could make one more variable."""
    chiefs = collectives.text_of_chief(_NO_VARIABLE)
    if chiefs != _NO_VARIABLE:
        _refuse_variable(collectives, collectives.index, _NO_VARIABLE, chiefs)


def _refuse_variable(collectives: Collectives, worker: int, own: str, chiefs: str) -> None:
    error = JobMismatchError(
        "The workers build different models.",
        received=f"{own} on worker {worker}, where worker 0 has {chiefs}",
        fix="Run the same program, with the same arguments and package versions, on every worker.",
    )
    collectives.report_failure(report(worker, error))
    raise error


def versions() -> dict[str, str]:
    """Return the versions that must be the same on all workers."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return {
        "version of Python": python,
        "version of TensorFlow": tf.__version__,
        "version of Keras": keras.__version__,
        "version of tfdistr": _version.__version__,
    }


def describe_call(call: KerasCall) -> dict[str, Any]:
    """Describe a call of fit, evaluate or predict on this worker."""
    given = call.variables
    fields: dict[str, Any] = {"call": call.method}
    fields |= {name: _plain(given[name]) for name in _ARGUMENTS[call.method]}
    fields["batches of an epoch"] = _plain(call.steps)
    fields["examples"] = _plain(_examples(given.get("x")))
    validation = given.get("validation_data")
    if isinstance(validation, tf.data.Dataset):
        types = describe_types(validation.element_spec)
        fields["validation_data"] = f"{int(validation.cardinality())} batches of {types}"
    elif call.method == "fit":
        fields["validation_data"] = "none" if validation is None else f"{_examples(validation)} examples"
    return fields


def _examples(data: Any) -> int | None:
    if data is None or isinstance(data, tf.data.Dataset):
        return None
    first = next((part for part in tf.nest.flatten(data) if getattr(part, "shape", None)), None)
    return None if first is None else first.shape[0]


def _plain(value: Any) -> str:
    return "none" if value is None else str(value)
