"""The options of ``strategy="parameter_server"``."""

from __future__ import annotations

from dataclasses import dataclass

from tfdistr.errors import ArgumentError
from tfdistr.utils.arguments import check_choice, check_optional_int

UPDATES = ("async", "sync")


@dataclass(frozen=True)
class ServerOptions:
    """The options for the updates of weights by parameter servers.

    Args:
        update: "async": each worker takes whole batches, and its gradient is applied when it comes. "sync":
            each batch is split over the workers, and the mean of their gradients is applied once.
        replicas_to_aggregate: With "sync": the number of workers whose shares of the batch make a step;
            later shares are dropped. By default all workers.

    Raises:
        ArgumentError: An argument is not of the form above.
    """

    update: str = "async"
    replicas_to_aggregate: int | None = None

    def __post_init__(self) -> None:
        check_choice("update", self.update, UPDATES)
        wanted = check_optional_int("replicas_to_aggregate", self.replicas_to_aggregate)
        object.__setattr__(self, "replicas_to_aggregate", wanted)
        if wanted is not None and self.update != "sync":
            raise ArgumentError(
                '`replicas_to_aggregate` needs update="sync": otherwise each gradient is applied alone.',
                received=f"update={self.update!r}, replicas_to_aggregate={wanted}",
                fix='Pass update="sync" too, or leave `replicas_to_aggregate` out.',
            )

    def check_workers(self, workers: int) -> None:
        """Refuse to wait for more workers than there are."""
        if self.replicas_to_aggregate is not None and self.replicas_to_aggregate > workers:
            raise ArgumentError(
                "`replicas_to_aggregate` must be at most the number of workers.",
                received=f"replicas_to_aggregate={self.replicas_to_aggregate}, {workers} workers",
                fix=f"Pass replicas_to_aggregate={workers} or less, or start more workers.",
            )
