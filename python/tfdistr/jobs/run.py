"""One job from its arguments to its result, for all calling languages."""

from __future__ import annotations

from typing import Any, Unpack

from tfdistr.checkpoint.object_store import is_url
from tfdistr.errors import ArgumentError
from tfdistr.jobs.caller import Caller
from tfdistr.jobs.on_cluster import fit_on_cluster
from tfdistr.jobs.outcome import Outcome
from tfdistr.jobs.result import FitResult
from tfdistr.jobs.resume import begin_or_resume
from tfdistr.jobs.run_dir import open_run_dir
from tfdistr.jobs.stored_run import StoredRun
from tfdistr.jobs.strategy_rules import RULES, StrategyRules
from tfdistr.jobs.strategy_runners import RUNNERS
from tfdistr.rendezvous.config import ClusterConfig
from tfdistr.rendezvous.pods import run_dir_of_pod
from tfdistr.strategies.options import MultiWorkerMirrored, StrategyOptions, as_strategy
from tfdistr.training.given_model import as_model_factory, callers_model, check_copy
from tfdistr.training.job import Job
from tfdistr.training.job_arguments import TrainingArguments, make_job, timeouts
from tfdistr.training.recovery_options import as_failures, check_recovery
from tfdistr.training.step_times import note_call
from tfdistr.utils.arguments import check_optional_path
from tfdistr.utils.interrupts import import_tensorflow
from tfdistr.utils.packages import check_installed
from tfdistr.utils.tuning import tune_this_process


class FitArguments(TrainingArguments, total=False):
    """The arguments that describe the job; see `make_job`."""

    x: Any
    y: Any
    sample_weight: Any
    validation_data: Any
    validation_split: Any
    batch_size: Any
    seed: Any


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
    **arguments: Unpack[FitArguments],
) -> FitResult:
    """Train; see ``distributed_fit()`` for the arguments and the errors.

    The named arguments determine where the job is trained, and its reaction to failures. The other arguments
    describe the job; see ``make_job()``.
    """
    note_call()
    check_installed()
    if cluster is None:
        tune_this_process(exact=arguments["virtual_workers"] is not None)
    run_dir = check_optional_path("run_dir", run_dir)
    if run_dir is None and cluster is None:
        run_dir = run_dir_of_pod()
    chosen, reaction = as_strategy(strategy), as_failures(failures)
    rules = RULES[chosen.name]
    config, num_workers = rules.destination(cluster, chosen)
    recovery = check_recovery(
        checkpoint_every, resume, reaction, run_dir, strategy=chosen.name, cluster=cluster,
        shrinking=[name for name, other in RULES.items() if other.shrinks],
    )  # fmt: skip
    state = None
    if isinstance(model, FitResult):
        state = model._trained.state()
        model = as_model_factory(model._trained.recipe)  # the result itself does not change
    job = make_job(
        model, num_workers=num_workers, strategy=chosen.name, options=chosen.options,
        **_exchange(chosen), **timeouts(cluster, chosen), step_timeout=reaction.step_timeout,
        recovery=recovery, state=state, **arguments,
    )  # fmt: skip
    rules.check_job(job)
    check_copy(job)
    _check_elastic(job, cluster)
    outcome = _train(job, rules, config, caller, cluster=cluster, run_dir=run_dir)
    result = FitResult._of(outcome)
    if callers_model(job.model) is not None:
        _ = result.model  # the caller's model gets its weights now
    return result


def _exchange(strategy: StrategyOptions) -> dict[str, Any]:
    """Return how workers exchange their gradients."""
    if not isinstance(strategy, MultiWorkerMirrored):
        return {}
    return {"communication": strategy.communication, "gradient_dtype": strategy.gradient_dtype}


def _train(
    job: Job, rules: StrategyRules, config: ClusterConfig | None, caller: Caller, *, cluster: Any,
    run_dir: Any,
) -> Outcome:  # fmt: skip
    if cluster is None:
        import_tensorflow()
        return RUNNERS[rules.name].fit_here(job, config, caller, run_dir)
    resume = job.recovery.resume
    if is_url(run_dir):
        with StoredRun(run_dir, cluster, resume=resume) as stored:
            job = begin_or_resume(job, stored.folder, cluster.workers)
            return fit_on_cluster(job, rules, cluster, caller, stored.folder, stored)
    with open_run_dir(
        run_dir, cluster, resume=resume, heartbeat_timeout=job.heartbeat_timeout
    ) as folder:
        job = begin_or_resume(job, folder, cluster.workers)
        return fit_on_cluster(job, rules, cluster, caller, folder)


def _check_elastic(job: Job, cluster: Any) -> None:
    if cluster is not None and cluster.fewest is not None and job.virtual_workers is None:
        raise ArgumentError(
            "A cluster with a variable number of workers needs `virtual_workers`.",
            received=f"from {cluster.fewest} to {cluster.workers} workers, and no virtual_workers",
            fix=f"Pass virtual_workers={cluster.workers}, or a cluster with one number of workers.",
        )
