"""Examples of data sets in files by index: which way of reading fits a data set, and its batches."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tfdistr.data.pipeline.decoded_blocks import DecodedStore, RecentBlocks
from tfdistr.data.pipeline.host_cache import HostMemory
from tfdistr.data.pipeline.index_batches import Indexed
from tfdistr.data.readers.blocks import Array, Blocks, Single, leaves_of
from tfdistr.data.readers.described import FileDataset, pack
from tfdistr.data.source import pack_parts
from tfdistr.errors import ArgumentError

log = logging.getLogger("tfdistr")

Take = Callable[[Array], list[Array]]

# What a file that was read in TensorFlow's threads was refused for, since the last look.
_refused: list[ArgumentError] = []
# What decodes the last batches again whose images TensorFlow decoded in its graph. Its error names no file.
_decoded: deque[Callable[[], Any]] = deque(maxlen=256)


def of_files(described: FileDataset, memory: HostMemory, *, shuffle: bool) -> Indexed:
    """Return the examples of a data set in files.

    Args:
        described: The data set.
        memory: The memory of the host.
        shuffle: Whether the examples are read in random order.

    Raises:
        ArgumentError: A file has changed or is damaged.
    """
    source = described.open()
    leaves, structure = leaves_of(source.structure), pack_parts(source.structure)
    in_memory = described.fits_in_memory(source)
    encoded = source if in_memory else source.encoded
    read, how = _reader(encoded, described.name, memory, shuffle, in_memory)
    log.info("load_dataset(%r): %d files, %s", described.name, len(described.files), how)
    kinds = [tf.as_dtype(leaf.kind) for leaf in leaves_of(encoded.structure)]

    def take(indices: Array) -> list[Array]:
        arrays = read(indices)
        return arrays if encoded is source else source.decoded(arrays, indices)

    @functools.wraps(read)
    def noted(indices: Array) -> list[Array]:
        if encoded is not source:
            _decoded.append(functools.partial(take, indices))
        try:
            return read(indices)
        except ArgumentError as error:
            _refused.append(error)
            raise

    def batch(indices: tf.Tensor) -> Any:
        parts = tf.numpy_function(noted, [indices], kinds, stateful=False)
        if encoded is not source:
            # Here and not in NumPy: two copies of each image less.
            parts = source.decoded_in_graph(parts)
        for part, leaf in zip(parts, leaves, strict=True):
            part.set_shape((None, *leaf.shape))
        return pack(structure, iter(parts))

    def in_arrays(indices: Array) -> Any:
        return pack(structure, iter(take(indices)))

    # What is in memory is gathered on the thread of the loop. All else is read during the steps before.
    return Indexed(len(source), batch, in_arrays, parallel=not in_memory, ahead=not in_memory)


def _reader(
    source: Blocks, name: str, memory: HostMemory, shuffle: bool, in_memory: bool
) -> tuple[Take, str]:
    if in_memory:
        return DecodedStore(source, memory).take, "decoded into memory"
    if isinstance(source, Single):
        return source.take, "by index"
    return _kept(source, name, memory, shuffle)


def _kept(source: Blocks, name: str, memory: HostMemory, shuffle: bool) -> tuple[Take, str]:
    if not shuffle and not source.only_once:
        return RecentBlocks(source).take, "in the order of the files"
    try:
        return DecodedStore(source, memory.disk).take, "decoded into a file on the disk"
    except OSError as error:
        if source.only_once:
            raise ArgumentError(
                f"The decoded examples of load_dataset({name!r}) must have a place on the disk.",
                received=str(error),
                fix="Set the environment variable TMPDIR to a folder with more space, or use Parquet files.",
            ) from error
        log.warning(
            "The decoded examples of load_dataset(%r) have no place on the disk, so that each shuffled batch "
            "decodes whole blocks of the files, which is slow: %s. Set the environment variable TMPDIR to a "
            "folder with more space.", name, error,
        )  # fmt: skip
    return RecentBlocks(source).take, "block by block"


@contextlib.contextmanager
def refused_files() -> Iterator[None]:
    """Raise the error for a file in the place of TensorFlow's error, which has it as a text only."""
    _refused.clear()
    _decoded.clear()
    try:
        yield
    except tf.errors.OpError as error:
        # A thread that reads ahead for an earlier job may have been refused, too.
        for refused in _refused:
            if str(refused) in error.message:
                raise refused from error
        # No image causes other errors, such as the one for a lost worker, and they must not wait for this.
        for decode_again in list(_decoded) if isinstance(error, tf.errors.InvalidArgumentError) else ():
            try:
                decode_again()
            except ArgumentError as refused:
                raise refused from error
        raise
    finally:
        _decoded.clear()
