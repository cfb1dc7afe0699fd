"""A training job: the checked arguments of ``distributed_fit()``, and their transfer to the workers."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from tfdistr.data.form import Form
from tfdistr.data.source import Source, batches_of, describe_source
from tfdistr.errors import ArgumentError
from tfdistr.r.functions import begin_with_seed, for_data, for_layers
from tfdistr.training.in_session import ANSWERS
from tfdistr.training.keras_settings import KerasSettings
from tfdistr.training.model_copies.given_model import given
from tfdistr.training.model_state import ModelState
from tfdistr.training.recovery_options import Recovery
from tfdistr.utils.arguments import (
    COMMUNICATION,
    GRADIENT_DTYPES,
    argument,
    check_bool,
    check_choice,
    check_int,
    check_optional_int,
    check_seconds,
)
from tfdistr.utils.describe import describe
from tfdistr.utils.function_files import FunctionByName, FunctionOfFile
from tfdistr.utils.pickles import load_value, remove_value, save_value
from tfdistr.utils.trackers import check_not_sent

if TYPE_CHECKING:
    from tfdistr.data.order.context import WorkerContext


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


_NAME = "job"
_STRATEGY = "strategy"
_SETTINGS = "keras"
_LARGEST_SEED = 2**32 - 1  # limit of NumPy

# The mark of fields that are not in the result's numbers, and that the workers need not compare.
_HIDDEN: dict[str, bool] = {"hidden": True}


def _check_model(model: object) -> object:
    model = given(model)
    no_function = hasattr(model, "get_weights") and not isinstance(model, type)  # such as a Keras 2 model
    if no_function or not (callable(model) or isinstance(model, FunctionByName)):
        raise ArgumentError(
            "`model` must be a compiled Keras 3 model, or a function without arguments that returns one.",
            received=describe(model),
            fix="Put the code that makes the model into a function: every worker calls it.",
        )
    if isinstance(model, FunctionOfFile):
        model.check_no_arguments("model")
    return model


def _check_callbacks(callbacks: object) -> object:
    if callbacks is None or callable(callbacks) or isinstance(callbacks, FunctionByName):
        return callbacks
    if isinstance(callbacks, list | tuple):
        for callback in callbacks:  # this process need not import Keras
            if isinstance(callback, FunctionByName):  # a worker makes it, see load()
                continue
            if isinstance(callback, type) or not hasattr(callback, "on_epoch_end"):
                raise not_a_callback(callback)
        return callbacks
    if hasattr(callbacks, "on_epoch_end"):
        return [callbacks]
    raise ArgumentError(
        "`callbacks` must be a list of Keras callbacks, or a function that returns one.",
        received=describe(callbacks),
        fix="Pass callbacks=[keras.callbacks.EarlyStopping()], for example.",
    )


def not_a_callback(received: object) -> ArgumentError:
    """Return the error if a list of callbacks has something else in it."""
    fix = "Pass a list of keras.callbacks.Callback objects."
    if isinstance(received, type):
        fix = f"Pass callbacks=[{received.__name__}()], for example."
    return ArgumentError(
        "`callbacks` must be Keras callbacks, or a function that returns them.",
        received=describe(received),
        fix=fix,
    )


def _check_class_weight(weights: Any) -> dict[int, float] | None:
    if weights is None:
        return None
    try:
        items = dict(weights).items()
        checked = {int(label): float(weight) for label, weight in items}
        numbers = all(isinstance(label, str) or int(label) == label for label, _ in items)
        if not numbers or len(checked) < len(items) or not all(map(math.isfinite, checked.values())):
            raise ValueError
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(
            "`class_weight` must map the numbers of classes to weights.",
            received=repr(weights),
            fix="Pass class_weight={0: 1.0, 1: 2.0}, for example.",
        ) from error
    return checked or None


def _check_validation_freq(value: Any) -> int | tuple[int, ...]:
    listed = not isinstance(value, str | Mapping) and hasattr(value, "__iter__")
    if not listed:
        return check_int("validation_freq", value)
    return tuple(sorted({check_int("validation_freq", epoch) for epoch in value}))


def _check_seed(seed: object) -> int:
    """Return the user's seed, or a random one."""
    if seed is None:
        return random.SystemRandom().randrange(2**31)
    return check_int("seed", seed, minimum=0, maximum=_LARGEST_SEED)


@attrs.frozen
class Job:
    """Everything that a worker needs to train.

    A field with the name of an argument of ``distributed_fit()``, which describes it, is this argument; its
    converter checks it. ``make_job()`` computes the other fields from several arguments.

    Attributes:
        model: Function without arguments that builds and compiles the model; ``GivenModel`` if the user gave
            a model.
        data: Training data.
        validation: Validation data, or None.
        callbacks: List of Keras callbacks, or a function that makes the list in the worker.
        batch_size: Examples of a global batch; None if the data function makes batches.
        seed: Seed of weights, order of examples and layers such as Dropout.
        seed_given: Whether the user gave the seed; otherwise it is random.
        validates_in_batches: Whether the validation gives batches, though the training gives examples.
        learning_rate_factor: Factor for the learning rate.
        warmup_epochs: Number of epochs over which the learning rate rises to the scaled value.
        strategy: The name of the strategy.
        options: The options of the strategy that are not fields of the job.
        same_on_any_cluster: Whether the options and the number of workers do not change the results.
        communication: The backend of the collectives.
        gradient_dtype: The type in which gradients are sent.
        virtual_workers: Number of shares of each global batch; None for a share for each worker.
        start_timeout: Seconds that the workers wait for each other at the start.
        heartbeat_timeout: Seconds without a heartbeat after which a worker counts as lost.
        task: "fit", "evaluate" or "predict".
        state: The initial state of the model; None for the state from its function.
        recovery: The reaction to failures.
        settings: Keras's settings of the session.
        form: The form of the data, as far as the session knows it.
        answers: The file with the answers of the session to this worker; None in the session.
    """

    model: Callable[[], Any] = attrs.field(converter=_check_model, metadata=_HIDDEN)
    data: Source | FunctionByName = attrs.field(converter=for_data, metadata=_HIDDEN)
    validation: Source | FunctionByName | None = attrs.field(
        default=None, converter=for_data, metadata=_HIDDEN
    )
    callbacks: Any = attrs.field(default=None, converter=_check_callbacks, metadata=_HIDDEN)
    batch_size: int | None = argument(check_optional_int, "batch_size", default=32)
    epochs: int = argument(check_int, "epochs", default=1)
    steps_per_epoch: int | None = argument(check_optional_int, "steps_per_epoch", default=None)
    validation_steps: int | None = argument(check_optional_int, "validation_steps", default=None)
    validation_batch_size: int | None = argument(check_optional_int, "validation_batch_size", default=None)
    validation_freq: int | tuple[int, ...] = attrs.field(default=1, converter=_check_validation_freq)
    initial_epoch: int = argument(check_int, "initial_epoch", default=0, minimum=0)
    class_weight: Mapping[int, float] | None = attrs.field(
        default=None, converter=_check_class_weight, metadata=_HIDDEN
    )
    seed: int = attrs.field(default=0, converter=_check_seed)
    seed_given: bool = attrs.field(default=True, metadata=_HIDDEN)
    shuffle: bool = argument(check_bool, "shuffle", default=True)
    drop_remainder: bool = argument(check_bool, "drop_remainder", default=False)
    validates_in_batches: bool = attrs.field(default=False, metadata=_HIDDEN)
    learning_rate_factor: float = 1.0
    warmup_epochs: int = argument(check_int, "warmup_epochs", default=0, minimum=0)
    strategy: str = "multi_worker_mirrored"
    options: Mapping[str, Any] = attrs.field(factory=dict, converter=for_layers, metadata=_HIDDEN)
    same_on_any_cluster: bool = attrs.field(default=False, metadata=_HIDDEN)
    communication: str = argument(check_choice, "communication", COMMUNICATION, default="auto")
    gradient_dtype: str = argument(check_choice, "gradient_dtype", GRADIENT_DTYPES, default="float32")
    virtual_workers: int | None = argument(check_optional_int, "virtual_workers", default=None)
    start_timeout: float = argument(check_seconds, "start_timeout", default=300.0, hidden=True)
    heartbeat_timeout: float = argument(check_seconds, "heartbeat_timeout", default=30.0, hidden=True)
    task: str = attrs.field(default="fit", metadata=_HIDDEN)
    state: ModelState | None = attrs.field(default=None, metadata=_HIDDEN)
    recovery: Recovery = attrs.field(factory=Recovery, metadata=_HIDDEN)
    settings: KerasSettings = attrs.field(factory=KerasSettings.here, metadata=_HIDDEN)
    form: Form = attrs.field(factory=Form, metadata=_HIDDEN)
    answers: Path | None = attrs.field(default=None, metadata=_HIDDEN)

    @property
    def functions(self) -> list[Any]:
        """The parts that may be functions."""
        listed = self.callbacks if isinstance(self.callbacks, list | tuple) else [self.callbacks]
        return [self.model, self.data, self.validation, *listed, *self.options.values()]

    @property
    def source(self) -> Source:
        """The training data, in the process that reads it."""
        assert not isinstance(self.data, FunctionByName)  # load() has replaced it
        return self.data

    @property
    def all_epochs(self) -> EpochRange:
        """The epochs of the training."""
        return EpochRange(self.epochs, self.initial_epoch, self.validation_freq)

    @property
    def params(self) -> dict[str, Any]:
        """The numbers of the job, as shown in its result."""
        shown = [field.name for field in attrs.fields(Job) if not field.metadata.get("hidden")]
        params = {name: getattr(self, name) for name in shown} | {"checkpoint_every": self.recovery.every}
        return params if self.batch_size is not None else params | {"batches_of": batches_of(self.data)}

    @property
    def description(self) -> dict[str, Any]:
        """The numbers of the job and the identity of its data, the same in each calling language."""
        described = self.params
        for name, source in (("examples", self.data), ("validation examples", self.validation)):
            described[name] = describe_source(source)
        return described

    def context(
        self,
        *,
        training: bool,
        num_workers: int = 1,
        index: int = 0,
        virtual_workers: tuple[range, int] | None = None,
    ) -> WorkerContext:
        """Return the context in which a worker reads the data."""
        from tfdistr.data.order.context import WorkerContext

        size = self.batch_size
        if not training:
            size = None if self.validates_in_batches else self.validation_batch_size or size
        return WorkerContext(
            num_workers=num_workers,
            index=index,
            global_batch_size=size,
            seed=self.seed,
            shuffle=self.shuffle and training,
            drop_remainder=self.drop_remainder and training,
            virtual_workers=virtual_workers,
        )

    def save(self, run_dir: Path, strategy_options: Mapping[str, object]) -> None:
        """Write the job into ``run_dir``, and all options for making its strategy."""
        check_not_sent(self.callbacks)
        save_value(self, run_dir, _NAME)
        # A separate file: the user's modules, which are imported with the job, may read the settings.
        save_value(self.settings, run_dir, _SETTINGS)
        # A separate file: the strategy must be made before the rest of the job uses TensorFlow.
        save_value((self.strategy, dict(strategy_options)), run_dir, _STRATEGY)

    @staticmethod
    def remove(run_dir: Path) -> None:
        """Remove what ``save`` has written: the data may be large, and no worker reads it any more."""
        for name in (_NAME, _SETTINGS, _STRATEGY):
            remove_value(run_dir, name)

    @staticmethod
    def load_strategy(
        run_dir: Path, functions: Mapping[str, object] | None = None
    ) -> tuple[str, dict[str, object]]:
        """Read only the strategy of a worker from ``run_dir``: its name and its options."""
        name, options = load_value(run_dir, _STRATEGY)
        present = dict(functions or {})
        return name, {k: present[v.name] if isinstance(v, FunctionByName) else v for k, v in options.items()}

    @staticmethod
    def load(run_dir: Path, functions: Mapping[str, Any] | None = None) -> Job:
        """Read the job from ``run_dir``."""
        load_value(run_dir, _SETTINGS).use()
        job = load_value(run_dir, _NAME)
        assert isinstance(job, Job)
        begin_with_seed(job.functions, job.seed)
        named = {name: getattr(job, name) for name in ("model", "data", "validation", "callbacks")}
        present = dict(functions or {})
        found = {k: present[v.name] for k, v in named.items() if isinstance(v, FunctionByName)}
        found = {"callbacks": _with_made(job.callbacks, present), **found}
        return attrs.evolve(job, answers=Path(run_dir, ANSWERS), **found)


def _with_made(callbacks: object, functions: Mapping[str, Any]) -> object:
    """Return a function that puts the callbacks of a function of another language into their places."""
    listed = callbacks if isinstance(callbacks, list | tuple) else ()
    named = {callback.name for callback in listed if isinstance(callback, FunctionByName)}
    if not named:
        return callbacks

    def make() -> list[Any]:
        made = iter(functions[named.pop()]())
        return [next(made) if isinstance(each, FunctionByName) else each for each in listed]

    return make
