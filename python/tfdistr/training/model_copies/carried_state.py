"""The state of a model beside its configuration and weights: what may be trained, LoRA, quantization."""

from __future__ import annotations

import contextlib

import attrs
import keras

from tfdistr import tf_internals
from tfdistr.checkpoint.variables import build_optimizers, trained_by
from tfdistr.training.model_copies.fingerprint import variables_in
from tfdistr.training.model_copies.plain_values import untracked


@attrs.frozen
class CarriedState:
    """The parts of a model that neither its configuration nor its weights have. It can be pickled.

    Attributes:
        builds: The configurations by which built layers can be built, by the number of the layer.
        quantized: The modes of quantized layers.
        lora: The ranks of layers with LoRA.
        layer_flags: ``trainable`` of each layer.
        variable_flags: ``trainable`` of each variable.
        exclusions: The variables without weight decay, for each optimizer.
        trained: The variables that each optimizer trains; None if it was not used.
    """

    builds: dict[int, object]
    quantized: dict[int, str]
    lora: dict[int, int]
    layer_flags: list[bool]
    variable_flags: list[bool]
    exclusions: list[tf_internals.Exclusions]
    trained: list[list[int] | None]

    @classmethod
    def of(cls, model: keras.Model) -> CarriedState:
        """Return the state of a compiled model."""
        layers = tf_internals.made_layers(model)
        variables = variables_in(layers)
        numbered = list(enumerate(layers))
        return cls(
            builds={n: config for n, layer in numbered if (config := _build_config(layer)) is not None},
            quantized={n: layer.quantization_mode for n, layer in numbered if _is_quantized(layer)},
            lora={n: layer.lora_rank for n, layer in numbered if getattr(layer, "lora_enabled", False)},
            layer_flags=[tf_internals.has_trainable_flag(layer) for layer in layers],
            variable_flags=[bool(variable.trainable) for variable in variables],
            exclusions=[tf_internals.exclusions_of(part, variables) for part in _optimizers(model)],
            trained=trained_by(model, strict=False),
        )

    def restore_layers(self, copy: keras.Model) -> None:
        """Give the layers of a copy this state, before it is compiled and before its weights are loaded."""
        layers = tf_internals.made_layers(copy)
        if len(layers) != len(self.layer_flags):
            return  # the comparison names the layers
        for number, layer in enumerate(layers):
            if number in self.builds and not layer.built:
                layer.build_from_config(self.builds[number])
            if number in self.quantized and not _is_quantized(layer):
                layer.quantize(self.quantized[number])
            if number in self.lora and not layer.lora_enabled:
                layer.enable_lora(self.lora[number])
        for layer, flag in zip(layers, self.layer_flags, strict=True):
            if tf_internals.has_trainable_flag(layer) != flag:
                layer.trainable = flag
        for variable, flag in zip(variables_in(layers), self.variable_flags, strict=False):
            if variable.trainable != flag:
                variable.trainable = flag

    def restore_compiled(self, copy: keras.Model) -> None:
        """Give a copy this state that is compiled, and whose optimizers were not built yet."""
        variables = variables_in(tf_internals.made_layers(copy))
        known = [n for excluded in self.exclusions for n in excluded.variables]
        if max(known, default=-1) < len(variables):
            for optimizer, excluded in zip(_optimizers(copy), self.exclusions, strict=False):
                if excluded != tf_internals.exclusions_of(optimizer, variables):
                    tf_internals.exclude(optimizer, excluded, variables)
        build_optimizers(copy, self.trained)

    def difference(self, copy: keras.Model) -> str | None:
        """Return what could not be restored in a copy, in words. Properties of classes may refuse it."""
        found, words = CarriedState.of(copy), "which a copy does not keep"
        if found.layer_flags != self.layer_flags:
            return f"`trainable` of a layer, {words}"
        same = found.variable_flags == self.variable_flags
        return None if same else f"`trainable` of a variable, {words}"


def _build_config(layer: keras.Layer) -> object:
    if not (layer.built and tf_internals.own_variables(layer)):
        return None
    with contextlib.suppress(Exception):  # the user's code can raise anything
        return untracked(layer.get_build_config())
    return None


def _is_quantized(layer: keras.Layer) -> bool:
    return getattr(layer, "quantization_mode", None) is not None


def _optimizers(model: keras.Model) -> list[keras.optimizers.Optimizer]:
    """Return all optimizers of a model, and those in them."""
    found = map(tf_internals.with_inner_optimizers, tf_internals.optimizers_of(model))
    return [part for optimizers in found for part in optimizers]
