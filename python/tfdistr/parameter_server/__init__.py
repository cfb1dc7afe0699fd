"""Training with parameter servers: ``strategy="parameter_server"``.

The parameter servers ("ps") hold the variables. Workers read them, compute gradients on batches that they
read themselves, and send them back. The chief hands out the steps, through TensorFlow's
``ClusterCoordinator``, and runs the callbacks. The workers and the parameter servers run `serve`, and the
chief `train_on_servers`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .coordinator import train_on_servers as train_on_servers
    from .launch import train_as_chief as train_as_chief
    from .options import ServerOptions as ServerOptions
    from .server import serve as serve

_MODULES = {
    "train_as_chief": "launch",
    "ServerOptions": "options",
    "serve": "server",
    "train_on_servers": "coordinator",
}
__all__ = [
    "ServerOptions",
    "serve",
    "train_as_chief",
    "train_on_servers",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'tfdistr.parameter_server' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tfdistr.parameter_server.{_MODULES[name]}"), name)
