"""Keras's settings of a session, for the processes that train in its place."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

#: The settings that change what a model computes, or what a function can load. Keras's module ``config`` has
#: them as ``NAME()`` and ``set_NAME()``. Older versions of Keras lack the last two.
_NAMES = ("floatx", "epsilon", "image_data_format", "max_epochs", "max_steps_per_epoch")


@attrs.frozen
class KerasSettings:
    """Keras's settings.

    Attributes:
        values: The settings by their names; empty if the process has not imported Keras.
    """

    values: Mapping[str, Any] = attrs.field(factory=dict)

    @classmethod
    def here(cls) -> KerasSettings:
        """Return the settings of this process. It does not import Keras."""
        if "keras" not in sys.modules:
            return cls()
        import keras

        from tfdistr import tf_internals

        config = keras.config
        values = {name: getattr(config, name)() for name in _NAMES if hasattr(config, name)}
        return cls(
            {
                **values,
                "dtype_policy": keras.dtype_policies.serialize(config.dtype_policy()),
                "flash_attention": config.is_flash_attention_enabled(),
                "safe_mode": tf_internals.in_safe_mode(),
            }
        )

    def with_policy(self, policy: object) -> KerasSettings:
        """Return these settings with another dtype policy."""
        import keras

        return KerasSettings({**self.values, "dtype_policy": keras.dtype_policies.serialize(policy)})

    @property
    def description(self) -> dict[str, str]:
        """The settings as texts by their names, for a comparison of processes."""
        return {f"keras.config.{name}()": str(value) for name, value in self.values.items()}

    def use(self) -> None:
        """Make these the settings of this process. Settings that already hold are left alone."""
        if not self.values or self == KerasSettings.here():
            return
        import keras

        from tfdistr import tf_internals

        config, wanted = keras.config, dict(self.values)
        policy, attention = wanted.pop("dtype_policy"), wanted.pop("flash_attention")
        tf_internals.set_safe_mode(wanted.pop("safe_mode"))
        for name, value in wanted.items():
            if hasattr(config, name):
                getattr(config, f"set_{name}")(value)
        config.set_dtype_policy(keras.dtype_policies.deserialize(policy))
        if attention is False:
            config.disable_flash_attention()
        else:
            config.enable_flash_attention()

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Use these settings within the context. The process has its own again afterwards."""
        importlib.import_module("keras")  # otherwise there are no settings to restore
        before = KerasSettings.here()
        try:
            self.use()
            yield
        finally:
            before.use()
