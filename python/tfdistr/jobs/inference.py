"""``evaluate()`` and ``predict()`` of a result, in this process or on a cluster."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tfdistr.clusters.backend import Backend
from tfdistr.clusters.local.local_cluster import local_cluster
from tfdistr.data.order.steps import steps_per_epoch
from tfdistr.data.source import Arrays, Source, make_source
from tfdistr.data.trees import leaves
from tfdistr.errors import ArgumentError
from tfdistr.jobs.caller import Caller
from tfdistr.jobs.membership import JOINED
from tfdistr.jobs.on_cluster import fit_on_cluster
from tfdistr.jobs.run_dir import remove_run_dir, temporary_run_dir
from tfdistr.jobs.strategies import MultiWorkerMirrored
from tfdistr.jobs.strategies.base import Destination
from tfdistr.training.job import Job
from tfdistr.training.job_arguments import make_job
from tfdistr.training.model_state import map_inputs
from tfdistr.training.prediction_files import FOLDER, files_of, in_structure, write_parquet
from tfdistr.utils.arguments import check_choice, check_optional_int, check_optional_path
from tfdistr.utils.function_files import FunctionByName
from tfdistr.utils.interrupts import import_tensorflow
from tfdistr.utils.packages import parquet

if TYPE_CHECKING:
    import keras

    from tfdistr.jobs.outcome import Outcome
    from tfdistr.jobs.result import FitResult
    from tfdistr.training.model_state import ModelState


def evaluate(
    caller: Caller, result: FitResult, *, x: Any, y: Any, sample_weight: Any, cluster: Any, name: str = "x",
    **numbers: Any,
) -> dict[str, float]:  # fmt: skip
    """Evaluate the model of a result; see ``FitResult.evaluate()``. The user calls ``x`` by ``name``."""
    state = result._trained.state()
    source = _source(result, state.inputs, x, y, sample_weight, name=name)
    if isinstance(source, Arrays) and len(source.parts) == 1 and result._form.targets is not False:
        raise ArgumentError(
            "evaluate() needs `y`: it compares outputs with targets.",
            received=f"`{name}` without `y`",
            fix="Pass `y`, or a function or data set whose examples are pairs (x, y).",
        )
    if cluster is None and _needs_worker(result):
        cluster = local_cluster(1)
    job, place = _job("evaluate", result, state, source, cluster, **numbers)
    if place.backend is not None:
        return _on_cluster(job, caller, place.backend).metrics
    import_tensorflow()
    with job.settings.used():
        return MultiWorkerMirrored.fit_here(job, place.config, caller).metrics


def _needs_worker(result: FitResult) -> bool:
    """Return whether virtual workers need another process: TensorFlow runs here with several threads."""
    if result.params.get("virtual_workers") is None or JOINED.settings:
        return False
    import_tensorflow()
    from tfdistr.strategies.virtual.rounding import may_use_one_thread

    return not may_use_one_thread()


def predict(
    caller: Caller, result: FitResult, *, x: object, cluster: object, output: object, output_format: object,
    name: str = "x", **numbers: object,
) -> Any:  # fmt: skip
    """Predict with the model of a result; see ``FitResult.predict()``. The user calls ``x`` by ``name``."""
    as_parquet = check_choice("output_format", output_format, ("npy", "parquet")) == "parquet"
    if as_parquet:
        parquet('`output_format="parquet"`')
    output = check_optional_path("output", output)
    folder = None if output is None else _empty_folder(output)
    if folder is None and as_parquet:
        raise ArgumentError(
            '`output_format="parquet"` needs `output`, a folder for files.',
            received="no `output`",
            fix='Pass output="predictions", for example.',
        )
    # The model of a joined cluster would predict on all of its workers.
    here = cluster is None and not JOINED.settings
    model = result.model if here else None
    state = result._trained.state()
    source = _source(result, state.inputs, x, name=name)
    job, place = _job("predict", result, state, source, cluster, joins=False, **numbers)
    if place.backend is not None:
        run_dir = Path(str(_on_cluster(job, caller, place.backend, keep=True).run_dir))
        try:
            return _collect(run_dir / FOLDER, folder, as_parquet)
        finally:
            remove_run_dir(run_dir)
    from tfdistr.training.tasks import write_predictions
    from tfdistr.training.trained_model import build_model

    if model is None or _splits(model):
        with job.settings.used():
            model = build_model(job)  # without a strategy
    beside = folder.parent if folder is not None and folder.parent.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="tfdistr-", dir=beside) as scratch, job.settings.used():
        write_predictions(model, job, Path(scratch))
        return _collect(Path(scratch), folder, as_parquet)


def _splits(model: keras.Model) -> bool:
    """Return whether the strategy of a model has several replicas, which predict unlike one replica."""
    strategy = model.distribute_strategy
    return strategy.num_replicas_in_sync > 1 or getattr(strategy, "virtual_workers", None) is not None


def _empty_folder(output: Any) -> Path:
    folder = Path(output).expanduser().absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ArgumentError(
            "`output` must be a new or empty folder, so that nothing is overwritten.",
            received=str(folder),
            fix="Pass another folder, or remove this one.",
        )
    return folder


def _source(
    result: FitResult, inputs: object, x: object, y: object = None, sample_weight: object = None, *, name: str
) -> Source | FunctionByName:
    """Check that data have the form of a model's training data."""
    if isinstance(x, FunctionByName):
        return x
    source = make_source(x, y, sample_weight, name=name, form=result._form)
    if isinstance(source, Arrays) and inputs is not None:
        _check_shapes(source, inputs, name)
    return source


def _check_shapes(source: Arrays, inputs: object, name: str) -> None:
    received = {path: list(array.shape[1:]) for path, array in leaves(source.parts[0])}
    wanted = dict(leaves(map_inputs(inputs, lambda shape, _: list(shape[1:]))))
    if received != wanted:
        text = [name + path for path, array in leaves(source.parts[0]) if array.dtype.kind in "OSU"]
        raise ArgumentError(
            f"`{name}` must have the form of the inputs that the model was trained with.",
            received=_shapes(received, name) + (f", with text in {', '.join(text)}" if text else ""),
            fix=f"Pass {_shapes(wanted, name)}.",
        )


def _shapes(shapes: dict[str, Any], name: str) -> str:
    sides = {name + path: ", ".join(map(str, ["examples", *shape])) for path, shape in shapes.items()}
    return "; ".join(f"{path}: [{shape}]" for path, shape in sides.items())


def _job(
    task: str, result: FitResult, state: ModelState, source: Source | FunctionByName, cluster: Any, *,
    batch_size: Any, steps: Any, joins: bool = True,
) -> tuple[Job, Destination]:  # fmt: skip
    wanted = check_optional_int("steps", steps)
    if isinstance(source, Arrays) and wanted is not None:
        available = steps_per_epoch(source.examples, 32 if batch_size is None else batch_size)
        if wanted > available:
            raise ArgumentError(
                "`steps` must be at most the number of batches, as each example is used once.",
                received=f"steps={wanted}, where {source.examples} examples make {available} batches",
                fix="Leave `steps` out to use all examples.",
            )
    # In a cluster that this process has joined, each call has the settings of the first one.
    settings = JOINED.settings if cluster is None and joins else {}
    if task == "evaluate":
        settings = {"virtual_workers": result.params.get("virtual_workers"), **settings}
    place = Destination(1)
    if joins or cluster is not None:
        strategy = MultiWorkerMirrored(communication=settings.get("communication", "auto"))
        place = strategy.destination(cluster)
        settings = {**settings, **strategy.timeouts(cluster)}
    recipe = result._trained.recipe_here if cluster is None else result._trained.recipe
    job = make_job(
        recipe, source, num_workers=place.shares, batch_size=batch_size, steps_per_epoch=wanted,
        seed=result.params["seed"], shuffle=False, task=task, state=state,
        settings=result._trained.settings, form=result._form, **settings,
    )  # fmt: skip
    return job, place


def _on_cluster(job: Job, caller: Caller, backend: Backend, *, keep: bool = False) -> Outcome:
    run_dir = temporary_run_dir(backend.cluster)
    result = fit_on_cluster(job, MultiWorkerMirrored, backend, caller, run_dir)
    if not keep:
        remove_run_dir(run_dir)
    return result


def _collect(written: Path, folder: Path | None, as_parquet: bool) -> object:
    """Return the outputs that the workers wrote; the paths of their files in ``folder``, if there is one."""
    found = files_of(written)
    if folder is None:
        return in_structure(
            written, [np.concatenate([np.load(file, mmap_mode="r") for file in files]) for files in found]
        )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if as_parquet:
        return write_parquet(written, folder)
    moved = []
    for leaf, files in enumerate(found):
        name = "predictions" if len(found) == 1 else f"predictions-{leaf}"
        places = [folder / f"{name}-{number:05d}.npy" for number in range(len(files))]
        for file, place in zip(files, places, strict=True):
            shutil.move(file, place)
        moved.append(places)
    return in_structure(written, moved)
