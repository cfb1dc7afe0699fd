"""One job from its arguments to its result, for all calling languages."""

from __future__ import annotations

from typing import Any

from tfdistr.errors import ArgumentError
from tfdistr.jobs.caller import Caller
from tfdistr.jobs.on_cluster import fit_on_cluster
from tfdistr.jobs.outcome import Outcome
from tfdistr.jobs.result import FitResult
from tfdistr.jobs.resume import begin_or_resume
from tfdistr.jobs.stored_run import open_run
from tfdistr.jobs.strategies import STRATEGIES, MultiWorkerMirrored, as_strategy
from tfdistr.jobs.strategies.base import Destination, Strategy
from tfdistr.rendezvous.pods import run_dir_of_pod
from tfdistr.replays.failed_step import explained
from tfdistr.training.job import Job
from tfdistr.training.job_arguments import make_job
from tfdistr.training.model_copies.given_model import as_model_factory, callers_model, check_copy
from tfdistr.training.model_copies.in_place import ModelInPlace
from tfdistr.training.recovery_options import as_failures, check_recovery
from tfdistr.training.step_times import note_call
from tfdistr.utils.arguments import check_optional_path
from tfdistr.utils.interrupts import import_tensorflow
from tfdistr.utils.packages import check_installed
from tfdistr.utils.tuning import tune_this_process


def run_fit(
    caller: Caller,
    *,
    model: Any,
    cluster: Any,
    strategy: Any,
    run_dir: Any,
    checkpoint_every: Any,
    resume: Any,
    failures: Any,
    keep_checkpoints: Any,
    **arguments: Any,
) -> FitResult:
    """Train; see ``distributed_fit()`` for the arguments and the errors, and `make_job`."""
    note_call()
    check_installed()
    if cluster is None:
        tune_this_process(exact=arguments["virtual_workers"] is not None)
    run_dir = check_optional_path("run_dir", run_dir)
    if run_dir is None and cluster is None:
        run_dir = run_dir_of_pod()
    chosen = as_strategy(strategy)
    place = chosen.destination(cluster)
    recovery = check_recovery(
        checkpoint_every, keep_checkpoints, resume, as_failures(failures), run_dir, strategy=chosen.name,
        cluster=cluster, shrinking=[name for name, other in STRATEGIES.items() if other.shrinks],
    )  # fmt: skip
    state, form = None, None
    if isinstance(model, FitResult):
        form = model._form
        state = model._trained.state()
        model = as_model_factory(model._trained.recipe)  # the result itself does not change
    job = make_job(
        model, num_workers=place.shares, drawn_seed=caller.seed, form=form, strategy=chosen.name,
        options=chosen.options, same_on_any_cluster=chosen.same_on_any_cluster, **chosen.exchange,
        **chosen.timeouts(cluster), recovery=recovery, state=state, **arguments,
    )  # fmt: skip
    chosen.check_job(job)
    if callers_model(job.model) is not None:
        from tfdistr.training.data_checks import check_given

        check_given(job)
    check_copy(job)
    alone = place == Destination(1) and chosen.name == MultiWorkerMirrored.name
    if isinstance(job.model, ModelInPlace) and not (alone and job.virtual_workers is None):
        job.model.refuse()
    _check_elastic(job, cluster)
    outcome = _train(job, chosen, place, cluster, caller, run_dir)
    result = FitResult._of(outcome)
    if callers_model(job.model) is not None:
        _ = result.model  # the caller's model gets its weights now
    return result


def _train(
    job: Job, chosen: Strategy, place: Destination, cluster: Any, caller: Caller, run_dir: Any
) -> Outcome:
    """Train at the place; with ``nan="explain"``, an error says what was not finite."""
    with explained(job, run_dir, caller.build, caller.on_seed):
        if place.backend is None:
            import_tensorflow()
            return chosen.fit_here(job, place.config, caller, run_dir)
        with open_run(run_dir, job, cluster) as (folder, stored):
            job = begin_or_resume(job, folder, cluster.workers, caller.on_event)
            return fit_on_cluster(job, type(chosen), place.backend, caller, folder, stored)


def _check_elastic(job: Job, cluster: Any) -> None:
    if cluster is not None and cluster.fewest is not None and job.virtual_workers is None:
        raise ArgumentError(
            "A cluster with a variable number of workers needs `virtual_workers`.",
            received=f"from {cluster.fewest} to {cluster.workers} workers, and no virtual_workers",
            fix=f"Pass virtual_workers={cluster.workers}, or a cluster with one number of workers.",
        )
