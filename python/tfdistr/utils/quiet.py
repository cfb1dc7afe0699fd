"""TensorFlow's messages while it is loaded, which no log level hides: R sessions and workers drop them."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
# NVIDIA's driver, and that of WSL.
_DRIVERS = ("/proc/driver/nvidia/version", "/dev/dxg")
#: What Abseil says of its own start, messages of the level "info", and a second line of one of them.
_DROPPED = "^(WARNING: All log messages before absl::|I[0-9]{4} [0-9:.]+ +[0-9]+ |To enable the following )"


def quiet_tensorflow() -> None:
    """Drop TensorFlow's start messages, unless it is loaded already or the user wants them."""
    if os.environ.get(_LEVEL, "2") not in ("2", "3"):
        return
    # Without a card, the errors of CUDA's start are mere messages.
    os.environ[_LEVEL] = os.environ.get(_LEVEL, "2") if any(map(os.path.exists, _DRIVERS)) else "3"
    if "tensorflow" not in sys.modules and not any(isinstance(each, _Finder) for each in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """The finder of TensorFlow: it finds what others find, and makes its loading quiet."""

    def find_spec(
        self, name: str, path: object = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = functools.partial(_load, spec.loader.exec_module)  # type: ignore[method-assign]
        return spec


def _load(load: Any, module: ModuleType) -> None:
    with _without_start_messages():
        load(module)


@contextlib.contextmanager
def _without_start_messages() -> Iterator[None]:
    """Send standard error through a process, which also shows the last words of a process that aborts."""
    program = shutil.which("grep")
    if program is None:
        yield
        return
    kept = os.dup(2)
    command = [program, "-a", "-v", "-E", "--line-buffered", _DROPPED]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=kept, start_new_session=True) as filtering:
        assert filtering.stdin is not None
        os.dup2(filtering.stdin.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
