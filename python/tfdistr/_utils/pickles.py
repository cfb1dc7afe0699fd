"""Values that go to other processes through a folder. They are pickled; a separate file has the arrays."""

from __future__ import annotations

import io
import json
import mmap
import os
import pickle
import sys
from pathlib import Path
from typing import Any

from tfdistr._utils.describe import describe
from tfdistr._utils.trusted_files import create_private, open_own
from tfdistr.errors import ArgumentError, TfdistrError

_ALIGNMENT = 64


def save_value(value: Any, run_dir: str | os.PathLike[str], name: str) -> None:
    """Write any value into ``run_dir``. All arrays in the value go into one separate file.

    Args:
        value: The value. Functions are written with the objects that they use.
        run_dir: The run directory of the job.
        name: The name of the files, without their endings.

    Raises:
        ArgumentError: Something in the value cannot be sent to another process.
    """
    import cloudpickle

    buffers: list[pickle.PickleBuffer] = []
    content = io.BytesIO()
    try:
        cloudpickle.CloudPickler(content, protocol=5, buffer_callback=buffers.append).dump(value)
    except TfdistrError:
        raise
    except Exception as error:  # the pickling code of an object can raise anything
        raise ArgumentError(
            "What the workers run must be such that it can be sent to other processes.",
            received=f"{_refused(value)}{type(error).__name__}: {error}",
            fix="Make models, datasets and callbacks inside the functions, not outside of them; "
            "pass `callbacks` as a function that returns the list.",
        ) from error
    places = []
    with create_private(Path(run_dir, f"{name}.buffers")) as file:
        for buffer in buffers:
            raw = buffer.raw()
            file.write(b"\0" * (-file.tell() % _ALIGNMENT))
            places.append((file.tell(), raw.nbytes))
            file.write(raw)
    with create_private(Path(run_dir, f"{name}.pkl")) as file:
        header = json.dumps({"path": sys.path, "buffers": places}).encode()
        file.write(header + b"\n")
        file.write(content.getbuffer())


def _refused(value: Any) -> str:
    """The first object of a list that cannot be pickled, in words. R sends a list of objects."""
    import cloudpickle

    for item in value if isinstance(value, list) else ():
        try:
            cloudpickle.dumps(item)
        except Exception:
            name = getattr(item, "name", None)
            return f"{describe(item)}{f' named {name!r}' if isinstance(name, str) else ''}: "
    return ""


def load_value(run_dir: str | os.PathLike[str], name: str) -> Any:
    """Read a value that ``save_value`` wrote. Its arrays are mapped into memory, not copied.

    Raises:
        TfdistrError: Another user could have written it, or it is not there.
    """
    with open_own(Path(run_dir, f"{name}.pkl")) as file:
        header = json.loads(file.readline())
        # Functions from the user's own modules are sent by name.
        sys.path.extend(entry for entry in header["path"] if entry not in sys.path)
        return pickle.load(file, buffers=_mapped(Path(run_dir, f"{name}.buffers"), header["buffers"]))


def _mapped(path: Path, places: list[list[int]]) -> list[memoryview]:
    if not places or path.stat().st_size == 0:
        return [memoryview(b"") for _ in places]
    with open_own(path) as file:
        whole = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    return [whole[start : start + size] for start, size in places]
