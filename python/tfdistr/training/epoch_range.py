"""The epochs of a training, and which of them have a validation."""

from __future__ import annotations

import attrs


@attrs.frozen
class EpochRange:
    """The epochs of a training, as Keras counts them: from 0.

    Attributes:
        end: Number of epochs, with those before ``first``.
        first: The first epoch.
        validation_freq: Every how many epochs there is a validation; or the numbers, from 1, of the epochs
            that have one.
    """

    end: int
    first: int = 0
    validation_freq: int | tuple[int, ...] = 1

    def validates(self, epoch: int) -> bool:
        """Return whether there is a validation after an epoch."""
        if isinstance(self.validation_freq, int):
            return (epoch + 1) % self.validation_freq == 0
        return epoch + 1 in self.validation_freq
