"""The transfer of values to other processes through a folder: pickles, and a separate file with arrays."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import mmap
import os
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tfdistr.errors import ArgumentError, TfdistrError
from tfdistr.utils.describe import describe
from tfdistr.utils.disk import BEFORE_START, writing
from tfdistr.utils.trusted_files import create_private, open_own

_ALIGNMENT = 64
_NO_RESERVE = 0x4000  # MAP_NORESERVE, which Python 3.11 does not have
_PIECE = 4 * 2**20  # bytes of an array that are copied at a time


def save_value(value: object, run_dir: str | os.PathLike[str], name: str) -> None:
    """Write any value into ``run_dir``. All arrays in the value go into one separate file."""
    buffers: list[pickle.PickleBuffer] = []
    content = io.BytesIO()
    try:
        _pickler()(content, protocol=5, buffer_callback=buffers.append).dump(value)
    except TfdistrError:
        raise
    except Exception as error:  # the pickling code of an object can raise anything
        raise ArgumentError(
            "Cannot serialize the job for the workers.",
            received=f"{_refused(value)}{type(error).__name__}: {error}",
            fix="Make models, datasets and callbacks inside the functions, not outside of them; "
            "pass `callbacks` as a function that returns the list.",
        ) from error
    places = []
    path = Path(run_dir, f"{name}.buffers")
    size = sum(map(_bytes, buffers))
    with _writing(path, size), create_private(path) as file:
        for buffer in buffers:
            file.write(b"\0" * (-file.tell() % _ALIGNMENT))
            start = file.tell()
            file.writelines(_pieces(buffer))
            places.append((start, file.tell() - start))
    path = Path(run_dir, f"{name}.pkl")
    header = json.dumps({"path": sys.path, "buffers": places}).encode()
    with _writing(path, len(header) + content.tell()), create_private(path) as file:
        file.write(header + b"\n")
        file.write(content.getbuffer())


def remove_value(run_dir: str | os.PathLike[str], name: str) -> None:
    """Remove the files of a value, if they are there."""
    for suffix in ("buffers", "pkl"):
        Path(run_dir, f"{name}.{suffix}").unlink(missing_ok=True)


@contextlib.contextmanager
def _writing(path: Path, size: int) -> Iterator[None]:
    with writing(path, "A file for the workers", needed=lambda: size, fix=BEFORE_START):
        try:
            yield
        except OSError:
            path.unlink(missing_ok=True)  # a partial file is useless, and takes space
            raise


def _bytes(buffer: pickle.PickleBuffer) -> int:
    view = memoryview(buffer)
    return view.obj.array.nbytes if isinstance(view.obj, _ByRows) else view.nbytes


# --- Arrays in another order than the one of the file


class _ByRows(bytearray):
    """The stand-in for an array whose rows are not contiguous, such as an R array. The file has its rows.

    So the array need not be copied before, and the workers gather rows directly from the file.
    """

    array: np.ndarray


@functools.cache
def _pickler() -> type[pickle.Pickler]:
    import cloudpickle

    class Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
        def reducer_override(self, obj: object) -> object:
            if type(obj) is np.ndarray and not obj.flags.c_contiguous and not obj.dtype.hasobject:
                stand_in = _ByRows()
                stand_in.array = obj
                return _of_rows, (pickle.PickleBuffer(stand_in), obj.dtype, obj.shape)
            return super().reducer_override(obj)

    return Pickler


def _of_rows(rows: Any, kind: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    return np.frombuffer(rows, kind).reshape(shape) if len(rows) else np.empty(shape, kind)


def _pieces(buffer: pickle.PickleBuffer) -> Iterator[object]:
    """Yield the bytes of a buffer, row by row, without a copy of the whole."""
    stand_in = memoryview(buffer).obj
    if not isinstance(stand_in, _ByRows):
        yield buffer.raw()
        return
    array = stand_in.array
    size = max(1, _PIECE * len(array) // max(array.nbytes, 1))
    for first in range(0, len(array), size):
        yield np.ascontiguousarray(array[first : first + size]).data.cast("B")


def _refused(value: object) -> str:
    """Describe the first object of a list that cannot be pickled. R sends a list of objects."""
    for item in value if isinstance(value, list) else ():
        if not can_be_pickled(item):
            name = getattr(item, "name", None)
            return f"{describe(item)}{f' named {name!r}' if isinstance(name, str) else ''}: "
    return ""


def can_be_pickled(value: object) -> bool:
    """Return whether other processes can have a value."""
    import cloudpickle

    try:
        cloudpickle.dumps(value)
    except Exception:  # the pickling code of an object can raise anything
        return False
    return True


def load_value(run_dir: str | os.PathLike[str], name: str) -> Any:
    """Map a value of ``save_value`` into memory; an error if another user could have written it.

    A change of its arrays stays in this process.
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
        # Writable, as the arrays were: the pages that this process changes are copied. Linux need not have
        # memory for a copy of the whole file.
        flags = mmap.MAP_PRIVATE | (_NO_RESERVE if sys.platform == "linux" else 0)
        protection = mmap.PROT_READ | mmap.PROT_WRITE
        whole = memoryview(mmap.mmap(file.fileno(), 0, flags=flags, prot=protection))
    return [whole[start : start + size] for start, size in places]
