"""Callbacks on several workers: writing callbacks run on the chief, and decisions hold for all workers.

Under ``MultiWorkerMirroredStrategy``, in any call of Keras's ``fit``, ``evaluate`` or ``predict``:

* Keras's callbacks that write, those of trackers, and callbacks marked by ``chief_only()``, run on the chief
  alone. They can read metrics without the peers: the workers exchange the values over all workers before.
* All other callbacks run on every worker. When one of them sets ``model.stop_training``, on any worker, all
  workers stop after the same batch or epoch. Callbacks for every batch see the metrics of all workers.
* At the end of an epoch the workers check that they still have the same model (``agreement.py``), and in the
  hooks of the user that they make the same calls (``same_calls.py``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras.callbacks import Callback

from tfdistr import tf_internals
from tfdistr.errors import ArgumentError
from tfdistr.strategies.agreement import Agreement
from tfdistr.strategies.exact.replica import OneReplica
from tfdistr.strategies.same_calls import HookEnd, hooks_of_user
from tfdistr.utils.describe import describe
from tfdistr.utils.trackers import of_tracker

_MARK = "tfdistr_chief_only"
_WRITERS = (
    keras.callbacks.BackupAndRestore,
    keras.callbacks.CSVLogger,
    keras.callbacks.ModelCheckpoint,
    keras.callbacks.RemoteMonitor,
    keras.callbacks.TensorBoard,
)
_SAVERS = (keras.callbacks.BackupAndRestore, keras.callbacks.ModelCheckpoint)
_HOOKS = [name for name in dir(Callback) if name.startswith("on_")]
_OF_BATCHES = ("on_train_batch_begin", "on_train_batch_end", "on_batch_begin", "on_batch_end")
_OF_TEST_BATCHES = ("on_test_batch_begin", "on_test_batch_end")


def chief_only(callback: Callback) -> Callback:
    """Mark a callback that runs on the chief alone.

    The mark is for callbacks that write files or print. Under ``MultiWorkerMirroredStrategy`` and in
    ``distributed_fit()`` the methods of the callback are then called on the chief only. They may read
    metrics, weights and the optimizer, save the model, and set ``model.stop_training``. They cannot train,
    evaluate or predict, because this needs all workers. Keras's callbacks that write (BackupAndRestore,
    CSVLogger, ModelCheckpoint, RemoteMonitor, TensorBoard) need no mark, nor do those of MLflow, of Weights &
    Biases and of TensorBoard's HParams plugin.

    Args:
        callback: A Keras callback.

    Returns:
        The callback.

    Raises:
        ArgumentError: ``callback`` is not a Keras callback.

    Example:
        >>> show = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: print(epoch, logs))
        >>> history = model.fit(dataset, epochs=3, callbacks=[tfdistr.chief_only(show)], verbose=0)
    """
    if not isinstance(callback, Callback):
        raise ArgumentError(
            "`callback` must be a Keras callback.",
            received=describe(callback),
            fix="Pass an object of a class that inherits from keras.callbacks.Callback.",
        )
    setattr(callback, _MARK, True)
    return callback


def runs_on_chief_only(callback: object) -> bool:
    """Return whether a callback runs on the chief alone: it writes, or it is marked."""
    return _writes(callback) or getattr(callback, _MARK, False) is True


def _writes(callback: object) -> bool:
    return isinstance(callback, _WRITERS) or of_tracker(callback)


def decides_by_batch(callback: Callback) -> bool:
    """Return whether a callback may stop training after any batch."""
    if _writes(callback) or isinstance(callback, keras.callbacks.History | keras.callbacks.ProgbarLogger):
        return False
    return getattr(callback, "decides", True) and any(_overrides(callback, name) for name in _OF_BATCHES)


def wants_batches(callback: Callback, kind: str) -> bool:
    """Return whether a callback needs a call for every batch of "train" or "test"."""
    if isinstance(callback, _ChiefOnly):
        return wants_batches(callback.callback, kind)
    if type(callback) in _SAVERS and callback.save_freq == "epoch":
        return False
    hooks = _OF_BATCHES if kind == "train" else _OF_TEST_BATCHES
    return any(_overrides(callback, hook) for hook in hooks)


def _overrides(callback: Callback, hook: str) -> bool:
    return hook in vars(callback) or getattr(type(callback), hook) is not getattr(Callback, hook)


def keep_quiet(callbacks: object) -> None:
    """Keep the chief-only callbacks from writing when Keras sets their model."""
    for callback in tf.nest.flatten(callbacks) if isinstance(callbacks, list | tuple | Callback) else []:
        if runs_on_chief_only(callback):
            callback.set_model = functools.partial(Callback.set_model, callback)


def notes(callbacks: keras.callbacks.CallbackList) -> dict[str, Any]:
    """Return what the peers must know about the callbacks of this worker."""
    everywhere = [c for c in callbacks.callbacks if not runs_on_chief_only(c)]
    return {
        "chief_only": [type(c).__name__ for c in callbacks.callbacks if runs_on_chief_only(c)],
        "everywhere": [type(c).__name__ for c in everywhere],
        "hooks": sorted({hook for callback in everywhere for hook in hooks_of_user(callback)}),
        "by_batch": any(map(decides_by_batch, callbacks.callbacks)),
    }


def coordinate(
    callbacks: keras.callbacks.CallbackList, peers: list[dict[str, Any]], extended: OneReplica, training: bool
) -> None:
    """Make the callbacks of all workers, in Keras's list, act together."""
    # The chief may have callbacks that its peers do not know. Then no worker reads metrics with the chief.
    known = all(peer["chief_only"] == peers[0]["chief_only"] for peer in peers)
    listed = callbacks.callbacks
    for callback in filter(runs_on_chief_only, listed):
        vars(callback).pop("set_model", None)  # undoes keep_quiet
    listed[:] = [_ChiefOnly(c, extended, known) if runs_on_chief_only(c) else c for c in listed]
    by_batch = training and any(peer["by_batch"] for peer in peers)
    if by_batch:
        tf_internals.call_on_this_thread(callbacks)
        _insert(callbacks, 0, _LogsOfAll(extended))
    hooks = {hook for peer in peers for hook in peer["hooks"]}
    last: Callback
    if training:
        agreement = Agreement(extended, callbacks.model, _not_everywhere(peers))
        if not extended.checks.calls.within_hook:
            extended.checks.agreement = agreement
        last = _Together(extended, agreement, hooks, by_batch)
    else:
        last = HookEnd(hooks, lambda hook, *_: extended.checks.calls.end(hook))
    extended.checks.calls.record(callbacks, hooks)
    _insert(callbacks, len(listed), last)


def _insert(callbacks: keras.callbacks.CallbackList, place: int, callback: Callback) -> None:
    callback.set_model(callbacks.model)
    callbacks.callbacks.insert(place, callback)


def _not_everywhere(peers: Sequence[dict[str, Any]]) -> list[str]:
    """Return the names of the callbacks that not all workers run."""
    names = dict.fromkeys(name for peer in peers for name in peer["everywhere"])
    differ = [n for n in names if len({peer["everywhere"].count(n) for peer in peers}) > 1]
    return list(dict.fromkeys([*differ, *(name for peer in peers for name in peer["chief_only"])]))


class _ChiefOnly(Callback):  # type: ignore[misc]
    """The stand-in for a chief-only callback; it exists on every worker."""

    def __init__(self, callback: Callback, extended: OneReplica, known: bool) -> None:
        super().__init__()
        self.callback = callback
        self._extended = extended
        self._known = known

    def call(self, hook: str, *args: object, **kwargs: object) -> None:
        """Call a method of the callback, if this is the chief."""
        metrics = {}
        if self._known and "batch" not in hook and _overrides(self.callback, hook):
            self._extended.checks.calls.before(f"{hook}() of {type(self.callback).__name__}")
            metrics = self._extended.read_together(self.model.metrics_variables)
        if self._extended.is_chief:
            with self._extended.within(local_only=True, sums=metrics or self._extended.step.sums):
                getattr(self.callback, hook)(*args, **kwargs)
            if hook == "on_epoch_end" and isinstance(self.callback, keras.callbacks.TensorBoard):
                tf_internals.flush_events(self.callback)  # no restart writes them again
        if (
            hook == "on_train_begin"
            and self._known
            and isinstance(self.callback, keras.callbacks.BackupAndRestore)
        ):
            self._share_restored()

    @property
    def runs_for(self) -> Callback:
        """The wrapped callback, whose state belongs in checkpoints."""
        return self.callback

    @property
    def model(self) -> keras.Model:
        """The model of the callback."""
        return self.callback.model

    def set_model(self, model: keras.Model) -> None:
        if self._extended.is_chief:
            self.callback.set_model(model)
        else:
            Callback.set_model(self.callback, model)

    def set_params(self, params: object) -> None:
        self.callback.set_params(params)

    def _share_restored(self) -> None:
        model = self.callback.model
        assert self._extended.collectives is not None
        (epoch,) = self._extended.collectives.from_chief([tf.constant(model._initial_epoch or 0)])
        if int(epoch):
            model._initial_epoch = int(epoch)
            variables = [*model.weights, *(model.optimizer.variables if model.optimizer else ())]
            self._extended.share_from_chief(variables)


def _forwarded(hook: str) -> Callable[..., None]:
    def forward(self: _ChiefOnly, *args: object, **kwargs: object) -> None:
        self.call(hook, *args, **kwargs)

    return forward


for _hook in _HOOKS:
    setattr(_ChiefOnly, _hook, _forwarded(_hook))


class _LogsOfAll(Callback):  # type: ignore[misc]
    """A callback before those that decide after a batch; it gives them the metrics over all workers."""

    remembers = False

    def __init__(self, extended: OneReplica) -> None:
        super().__init__()
        self._extended = extended

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        metrics = self._extended.read_together(self.model.metrics_variables)
        with self._extended.within(sums=metrics):
            results = self.model.get_metrics_result()
        if logs and set(results) == set(logs):  # otherwise a custom train_step has made other logs
            arrays = {name: keras.ops.convert_to_numpy(value) for name, value in results.items()}
            logs.update({name: value if value.ndim else float(value) for name, value in arrays.items()})


class _Together(HookEnd):
    """The last callback of a training. It stops all workers if one stops, and checks that they agree."""

    def __init__(self, extended: OneReplica, agreement: Agreement, hooks: set[str], by_batch: bool) -> None:
        deciding = {"on_epoch_end", *(["on_train_batch_end"] if by_batch else ())}
        super().__init__(hooks | deciding, self._at_hook)
        self._extended = extended
        self._agreement = agreement
        self._deciding = deciding

    def _at_hook(self, hook: str, *arguments: Any) -> None:
        checks = self._extended.checks
        if hook not in self._deciding:
            checks.calls.end(hook)
            return
        numbers = [int(self.model.stop_training)]
        if hook == "on_epoch_end":  # one exchange for all
            epoch, logs = arguments
            numbers += [self._agreement.checksum(), *checks.loss.numbers(logs or {})]
        table = checks.calls.end(hook, *numbers)
        self.model.stop_training = bool(table[:, 0].any())
        if hook == "on_epoch_end":
            self._agreement.check(table[:, 1].tolist(), f"after epoch {epoch + 1}")
            checks.loss.report(table[:, 2:])
