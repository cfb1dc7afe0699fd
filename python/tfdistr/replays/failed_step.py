"""The error of a job that ends because a step is not finite, with the cause."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from tfdistr.errors import ArgumentError, NotFiniteError, TfdistrError
from tfdistr.training.job import Job
from tfdistr.utils.function_files import FunctionByName
from tfdistr.utils.interrupts import import_tensorflow


@contextlib.contextmanager
def explained(
    job: Job, run_dir: object, build: Callable[[], object] | None, on_seed: Callable[[int], object]
) -> Iterator[None]:
    """Replay the step that is not finite with which a job in the context ends, if the job asks for it.

    Args:
        job: The job.
        build: Builds the model in this process; None for the job's own function.
        on_seed: Sets the seed of R.

    Raises:
        NotFiniteError: The trace of the run has such a step. The error has its cause.
    """
    try:
        yield
    except TfdistrError as error:
        if job.recovery.nan is None:
            raise
        found = _explain(job, run_dir, build or job.model, on_seed)
        if found is None:
            raise
        raise found from error


def _explain(
    job: Job, run_dir: object, model: object, on_seed: Callable[[int], object]
) -> NotFiniteError | None:
    import_tensorflow()
    from tfdistr.replays.kept_run import open_kept
    from tfdistr.replays.replay import RunAgain, replay_step

    step: int | None = None
    fix = "Look at these rows, or lower the learning rate. Then train again in another `run_dir`."
    try:
        with open_kept(run_dir) as kept:
            step = kept.check_step("nan")
            if any(isinstance(part, FunctionByName) for part in (job.data, job.validation, job.callbacks)):
                lines = ["The data or the callbacks are functions that only the workers have."]
            else:
                given = {
                    "model": model, "x": job.data, "validation_data": job.validation,
                    "callbacks": job.callbacks,
                }  # fmt: skip
                found = replay_step(RunAgain(kept, given, on_seed), "nan")
                step = found.step
                lines = found.cause.lines if found.cause else ["The step is finite in the replay."]
    except ArgumentError as error:
        if step is None:  # the job has failed for another reason
            return None
        lines = ["A replay in this process is not possible:", *str(error).splitlines()]
        fix = f"Call tfdistr.replay({str(run_dir)!r}, {step}, model, x, y) in a new session."
    message = f"The loss, the gradients or the update of step {step} are not finite."
    return NotFiniteError(message, received=" ".join(lines), fix=fix)
