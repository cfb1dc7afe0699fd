"""``ModelParallelStrategy``: the layers of one model on several devices or tasks.

One process, the client, runs the training step. A layer's weights, their optimizer state, and the computation
with them in both passes are on the layer's device. TensorFlow cuts the graph of a step into one graph for
each device, and sends tensors between them.
"""

from __future__ import annotations

import functools
import logging
import weakref
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.data.pipeline.worker_data import WorkerData
from tfdistr.errors import ArgumentError
from tfdistr.rendezvous.config import ClusterConfig, cluster_from_env
from tfdistr.servers.chief import dismiss_servers, prepare_dismissal, running_servers
from tfdistr.strategies.build import build
from tfdistr.strategies.layer_placement import (
    Placement,
    check_form,
    check_placement,
    check_task,
    parse_place,
    workers_in,
)
from tfdistr.strategies.worker_strategy import OneProcessStrategy
from tfdistr.strategies.xla import compile_between_exchanges, marked

log = logging.getLogger("tfdistr")

_placed: weakref.WeakSet[keras.Model] = weakref.WeakSet()
_TABLES = (keras.layers.TextVectorization, keras.layers.StringLookup, keras.layers.IntegerLookup)


class ModelParallelStrategy(OneProcessStrategy, tf.distribute.OneDeviceStrategy):  # type: ignore[misc]
    """Training with the layers of a model on several devices, with the result of one device.

    The devices of this process can be used. If TF_CONFIG describes this process as the chief of workers that
    `tfdistr server --type worker` runs, the devices of the workers count, too. Make the model in ``scope()``,
    then call ``place()``.

    Args:
        placement: The place of a layer by its name, or a function that takes a layer and returns its place,
            or None. Places are "worker 1", "worker 1 gpu:0", "chief", and "cpu:0" or "gpu:1" for devices of
            this process. A layer without a place goes where the layer before it is. A layer inside another
            layer goes where the outer layer is. Layers with a table, such as ``TextVectorization``, are in
            this process.
        start_timeout: Seconds that the workers may take to start.

    Raises:
        ArgumentError: A device or a task does not exist.
        ClusterConfigError: TF_CONFIG does not describe the chief of workers.
        ClusterStartError: A worker did not start.

    Source: Jeffrey Dean et al., Large Scale Distributed Deep Networks, NIPS 2012 (model parallelism).

    Example:
        >>> strategy = tfdistr.ModelParallelStrategy({"first": "cpu:0", "second": "cpu:0"})
        >>> with strategy.scope():
        ...     layers = [keras.layers.Dense(8, name="first"), keras.layers.Dense(1, name="second")]
        ...     model = keras.Sequential([keras.Input((4,)), *layers])
        ...     model.compile("sgd", "mse")
        >>> strategy.place(model)
        >>> history = model.fit(np.ones((8, 4)), np.ones((8, 1)), verbose=0)
    """

    def __init__(self, placement: Placement, start_timeout: float = 300.0) -> None:
        config = cluster_from_env()
        self._workers = None if config is None else workers_in(config)
        check_placement(check_form(placement), self._workers)
        if config is not None:
            _join(config, start_timeout)
        self._placement, self._config = placement, config
        self.title = None if config is None else "the chief"
        self.variables_are_remote = config is not None
        self.layers_are_apart = True
        self._devices = [device.name for device in tf.config.list_logical_devices()]
        self._here = "/job:chief/replica:0/task:0" if config else ""  # as TensorFlow names its devices then
        if not callable(placement):
            for name in placement.values():
                parse_place(name).find(self._devices, self._here)
        # Skips the stock constructor, which would create the stock object in place of this one.
        extended = tf_internals.OneDeviceExtended(self, f"{self._here}/device:CPU:0")
        super(tf.distribute.OneDeviceStrategy, self).__init__(extended)

    def place(self, model: keras.Model, data: tf.data.Dataset | None = None) -> None:
        """Bring the layers of a model to their places: their variables, and the computation with them.

        With Keras's own ``train_step`` the gradients are computed there, too. With a custom step they are
        computed in this process, from the outputs of the layers.

        Call it outside ``scope()``, before the step is traced.

        Args:
            model: The model.
            data: Batches as in training, for a model whose weights do not exist yet.

        Raises:
            ArgumentError: The model is not built, or a layer or a place does not exist.
        """
        received = None
        if not model.built and data is None:
            received = "a model that is not built"
        elif getattr(model.optimizer, "built", False):
            received = "a model that was trained"
        elif model in _placed:
            received = "a model that was placed before"
        elif tf.distribute.has_strategy():
            received = "a call in the scope"
        if received is not None:
            raise ArgumentError(
                "place() takes a model that is built, before it is trained, outside of the strategy's scope.",
                received=received,
                fix="Begin the model with keras.Input() or call its build(), and place it after the scope.",
            )
        compile_between_exchanges(model, "several devices")
        if data is not None:
            build(model, data, optimizer=False)  # it is built later, for the variables in place
        places = self._places(model)
        _placed.add(model)
        for layer, device in places.items():
            _compute_at(device, layer)
            with self.scope(), tf_internals.overridden(self.extended, "device_of_new", device):
                for variable in layer.variables:
                    tf_internals.make_again(variable)
        if model.optimizer is not None:
            _compute_at_variables(model)

    def run(
        self, fn: Callable[..., object], args: object = (), kwargs: object = None, options: object = None
    ) -> Any:
        """Run ``fn`` once; see ``tf.distribute.Strategy.run``."""
        found = tf_internals.keras_step(fn, inline=True)
        model = found[0] if found else tf_internals.keras_prediction(fn)
        with marked(model):
            return super().run(fn, args=args, kwargs=kwargs, options=options)

    def prepare(self, model: keras.Model, data: WorkerData) -> None:
        """Bring the layers of a model to their places."""
        self.place(model, data)

    def leave(self) -> bool:
        """Dismiss the workers."""
        if self._config is not None:
            dismiss_servers(self._config)
        return True

    @property
    def config(self) -> ClusterConfig | None:
        """The cluster of the workers; None if there are none."""
        return self._config

    def _places(self, model: keras.Model) -> dict[keras.Layer, str]:
        """Return the device of each layer that has one; layers inside others come after these."""
        outer, everywhere = (
            [layer for layer in layers if not isinstance(layer, keras.layers.InputLayer)]
            for layers in (model.layers, tf_internals.all_layers(model))
        )
        if not callable(self._placement):
            missing = sorted(set(self._placement) - {layer.name for layer in everywhere})
            if missing:
                raise ArgumentError(
                    "`placement` must name layers of the model.",
                    received=", ".join(missing),
                    fix=f"Choose among {', '.join(layer.name for layer in outer)}.",
                )
        named = {layer: device for layer in everywhere if (device := self._device(layer)) is not None}
        before = next((named[layer] for layer in outer if layer in named), None)
        found: dict[keras.Layer, str] = {}
        for layer in outer:
            if layer in named or not isinstance(layer, _TABLES):
                before = named.get(layer, before)
                if before is not None:
                    found[layer] = before
        return found | {layer: device for layer, device in named.items() if layer not in found}

    def _device(self, layer: keras.Layer) -> str | None:
        given = self._placement
        name = given(layer) if callable(given) else given.get(layer.name)
        if name is None:
            return None
        if isinstance(layer, _TABLES):
            raise ArgumentError(
                "`placement` must leave out layers that hold a table, which cannot be moved to a device.",
                received=f"{name} for the layer {layer.name}",
                fix="Leave it out: it stays in the calling process.",
            )
        place = parse_place(name)
        check_task(place, self._workers, layer.name)
        return place.find(self._devices, self._here)


def _join(config: ClusterConfig, start_timeout: float) -> None:
    cluster = running_servers(config, start_timeout)
    tf.config.experimental_connect_to_cluster(cluster, job_name="chief", task_index=0, protocol="grpc")
    prepare_dismissal()


def _compute_at(device: str, layer: keras.Layer) -> None:
    """Make a layer compute on a device."""
    call = layer.call

    @functools.wraps(call)
    def placed(*args: object, **kwargs: object) -> Any:
        with tf.device(device):
            return call(*args, **kwargs)

    layer.call = placed


def _compute_at_variables(model: keras.Model) -> None:
    """Make the optimizer of a model compute the update of a variable on the variable's device.

    Keras creates the optimizer state of a variable, such as a momentum, there.
    """
    optimizer = model.optimizer
    inner = getattr(optimizer, "inner_optimizer", optimizer)  # inside a LossScaleOptimizer
    update, scale_loss, apply = inner.update_step, optimizer.scale_loss, optimizer.apply
    losses: list[tf.Tensor] = []

    def update_there(gradient: object, variable: object, *args: object) -> object:
        with tf.device(tf_internals.device_of(variable)):
            return update(gradient, variable, *args)

    def keep_loss(loss: object) -> object:
        scaled = scale_loss(loss)
        if tf.executing_eagerly():
            return scaled
        # A tape records no devices: all its gradients would be computed in this process.
        losses[:] = [scaled]
        return tf.stop_gradient(scaled)

    def apply_gradients(grads: Any, trainable_variables: Any = None) -> Any:
        if losses:
            variables = model.trainable_variables if trainable_variables is None else trainable_variables
            values = [v.value if isinstance(v, keras.Variable) else v for v in variables]
            grads = tf.compat.v1.gradients(losses.pop(), values, colocate_gradients_with_ops=True)
        return apply(grads, trainable_variables)

    inner.update_step = update_there
    if type(model).train_step is keras.Model.train_step:  # another one may do more with its gradients
        optimizer.scale_loss, optimizer.apply = keep_loss, apply_gradients
