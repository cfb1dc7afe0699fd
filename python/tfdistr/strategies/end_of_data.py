"""The warning about data that ends before Keras's ``fit``, ``evaluate`` or ``predict`` has made its steps.

Keras's warning names neither number. ``distributed_fit()`` repeats the data, and does not need it.
"""

from __future__ import annotations

import logging

from tfdistr import tf_internals

log = logging.getLogger("tfdistr")


def warn_at_early_end(call: tf_internals.KerasCall, *, is_chief: bool) -> None:
    """Make the chief warn in place of Keras if the data that ``call`` distributes ends early."""
    of_training = call.method == "fit" and "epoch_iterator" not in call.variables
    if of_training:
        what, argument = "An epoch of fit()", "steps_per_epoch"
    elif call.method == "fit":
        what, argument = "A validation", "validation_steps"
    else:
        what, argument = f"{call.method}()", "steps"
    epochs = call.variables["epochs"] - call.variables["initial_epoch"] if of_training else 1

    def tell(steps: int, batches: int | None) -> None:
        log.warning(
            "%s ended early: the data has %s batches for %s=%d%s. Leave `%s` out, or repeat() the dataset.",
            what, "too few" if batches is None else f"only {batches}", argument, steps,
            f" and {epochs} epochs" if epochs > 1 else "", argument,
        )  # fmt: skip

    tf_internals.on_end_of_data(tell if is_chief else lambda steps, batches: None)
