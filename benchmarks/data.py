"""Rows and images per second of data sets in files.

Each worker reads its batches on a core of its own, for some seconds after its first batch; all of them at the
same time, without a model. tfdistr reads a worker's part of the global batches. tf.data is used as
AutoShardPolicy.DATA does: each worker reads all examples and keeps its part. PyTorch's DataLoader has a
DistributedSampler, and a dataset that decodes the row group of a row and keeps the last eight. All decode
images with TensorFlow, one thread each.

As a program it is one process of this: data.py FOLDER WORKERS INDEX WHAT [SYSTEM SHUFFLE]
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import processes
from report import in_turn, show, table
from systems import OTHERS

import tfdistr

ROWS, COLUMNS, GROUP = 9_000_000, 16, 100_000
BATCH = {"rows": 256, "images": 32}  # of a worker
SECONDS = 8.0
SIDE = 224  # pixels of an image


def write_rows(folder: Path) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    draw = np.random.default_rng(0)
    names = [f"x{number}" for number in range(COLUMNS - 1)]
    for part in range(3):
        table = {name: draw.normal(size=ROWS // 3).astype(np.float32) for name in names}
        table["y"] = draw.normal(size=ROWS // 3).astype(np.float32)
        pq.write_table(pa.table(table), folder / f"part-{part}.parquet", row_group_size=GROUP)


def write_images(folder: Path) -> None:
    """The training digits, as JPEGs of ``SIDE`` x ``SIDE`` pixels in ten folders."""
    import tensorflow as tf

    for number in range(10):
        (folder / str(number)).mkdir()
    images, _ = tfdistr.load_dataset("digits").arrays()
    large = tf.data.Dataset.from_tensor_slices(images).map(
        lambda image: tf.io.encode_jpeg(
            tf.image.grayscale_to_rgb(tf.cast(tf.image.resize(image, [SIDE, SIDE]) * 15.9, tf.uint8))
        )
    )
    for number, image in enumerate(large):
        (folder / str(number % 10) / f"{number:04}.jpeg").write_bytes(image.numpy())


def decode(name: Any) -> Any:
    """The pixels of a file."""
    import tensorflow as tf

    image = tf.io.decode_jpeg(tf.io.read_file(name), channels=3)
    image.set_shape([SIDE, SIDE, 3])
    return image


def tfdistr_reads(described: Any, workers: int, index: int, shuffle: bool, batch: int) -> Iterator[int]:
    """The number of examples of each batch, as of the other two."""
    import tensorflow as tf

    from tfdistr.data import datasets
    from tfdistr.data.order.context import WorkerContext
    from tfdistr.data.pipeline.index_batches import ReadAhead
    from tfdistr.data.pipeline.worker_data import make_data
    from tfdistr.training.step_blocks import GATHERED_BYTES

    datasets.IN_MEMORY_BYTES = 1  # as where the examples are larger than the memory
    context = WorkerContext(workers, index, workers * batch, seed=1, shuffle=shuffle)
    data = make_data(described, context)
    at_a_time = GATHERED_BYTES // data.arrays.most_bytes
    if not at_a_time:  # as the training loop does
        yield from (len(tf.nest.flatten(parts)[0]) for parts in data.dataset)
        return
    ahead, step = ReadAhead(data.arrays, at_a_time), 0
    while True:
        stack = tf.nest.map_structure(tf.constant, ahead.batches(step, at_a_time))
        steps, examples = tf.nest.flatten(stack)[0].shape[:2]
        step += steps
        yield steps * examples


def rows_of_tfdistr(folder: Path, shuffle: bool) -> Any:
    return tfdistr.load_dataset("parquet", files=folder, target="y")


def images_of_tfdistr(folder: Path, shuffle: bool) -> Any:
    return tfdistr.load_dataset("image_folder", files=folder)


def tf_data_reads(examples: Any, workers: int, index: int, shuffle: bool, batch: int) -> Iterator[int]:
    import tensorflow as tf

    dataset = examples.repeat().shard(workers, index).batch(batch).prefetch(tf.data.AUTOTUNE)
    for x, _ in dataset:
        yield len(x)


def rows_of_tf_data(folder: Path, shuffle: bool) -> Any:
    import numpy as np
    import pyarrow.parquet as pq
    import tensorflow as tf

    def groups() -> Iterator[Any]:
        for path in sorted(folder.glob("*.parquet")):
            for batch in pq.ParquetFile(path).iter_batches(GROUP):
                columns = [column.to_numpy() for column in batch.columns]
                yield np.stack(columns[:-1], 1), columns[-1]

    specs = (tf.TensorSpec((None, COLUMNS - 1), tf.float32), tf.TensorSpec((None,), tf.float32))
    examples = tf.data.Dataset.from_generator(groups, output_signature=specs).unbatch()
    return examples.shuffle(10_000, seed=1) if shuffle else examples


def images_of_tf_data(folder: Path, shuffle: bool) -> Any:
    import tensorflow as tf

    paths = sorted(folder.glob("*/*.jpeg"))
    names = tf.data.Dataset.from_tensor_slices(
        ([*map(str, paths)], [int(path.parent.name) for path in paths])
    )
    names = names.shuffle(len(paths), seed=1) if shuffle else names
    return names.map(lambda name, label: (decode(name), label), tf.data.AUTOTUNE)


def torch_reads(dataset: Any, workers: int, index: int, shuffle: bool, batch: int) -> Iterator[int]:
    import torch

    sampler = torch.utils.data.DistributedSampler(dataset, workers, index, shuffle=shuffle)
    while True:
        for x, _ in torch.utils.data.DataLoader(dataset, batch, sampler=sampler):
            yield len(x)


def rows_of_torch(folder: Path, shuffle: bool) -> Any:
    import numpy as np
    import pyarrow.parquet as pq

    files = [pq.ParquetFile(path) for path in sorted(folder.glob("*.parquet"))]
    places = [(file, group) for file in files for group in range(file.num_row_groups)]

    @functools.lru_cache(maxsize=8)
    def decoded(place: int) -> Any:
        file, group = places[place]
        return np.stack([column.to_numpy() for column in file.read_row_group(group).columns], 1)

    class Rows:
        def __len__(self) -> int:
            return ROWS

        def __getitem__(self, row: int) -> Any:
            values = decoded(row // GROUP)[row % GROUP]
            return values[:-1], values[-1]

    return Rows()


def images_of_torch(folder: Path, shuffle: bool) -> Any:
    paths = [str(path) for path in sorted(folder.glob("*/*.jpeg"))]

    class Images:
        def __len__(self) -> int:
            return len(paths)

        def __getitem__(self, number: int) -> Any:
            return decode(paths[number]).numpy(), int(Path(paths[number]).parent.name)

    return Images()


#: The examples, and what reads them, by system.
EXAMPLES: dict[str, dict[str, Callable[[Path, bool], Any]]] = {
    "rows": {"tfdistr": rows_of_tfdistr, "tf.data": rows_of_tf_data, "torch": rows_of_torch},
    "images": {"tfdistr": images_of_tfdistr, "tf.data": images_of_tf_data, "torch": images_of_torch},
}
READS: dict[str, Callable[..., Iterator[int]]] = {
    "tfdistr": tfdistr_reads,
    "tf.data": tf_data_reads,
    "torch": torch_reads,
}


def read(what: str, system: str, folder: Path, workers: int, index: int, shuffle: bool) -> None:
    """One worker: prints the seconds to its first batch, and the examples per second after it."""
    import tensorflow as tf

    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    began = time.monotonic()
    examples_of = EXAMPLES[what][system](folder, shuffle)
    batches = READS[system](examples_of, workers, index, shuffle, BATCH[what])
    next(batches)
    first = time.monotonic()
    examples = 0
    while time.monotonic() < first + SECONDS:
        examples += next(batches)
    print(json.dumps([first - began, examples / (time.monotonic() - first)]), flush=True)
    os._exit(0)  # threads may be reading ahead


def run(folder: Path, workers: int, *what: object, of: str = sys.executable) -> list[tuple[float, float]]:
    """What each of some workers printed last."""
    commands = [processes.python("data.py", folder, workers, index, *what, of=of) for index in range(workers)]
    if len(what) > 1:  # they read; what writes uses all cores
        commands = [processes.pinned(command, index) for index, command in enumerate(commands)]
    return [tuple(json.loads(text.splitlines()[-1])) for text in processes.run(commands, timeout=900)]


def compare(rounds: int) -> None:
    """Print both tables."""
    for what in EXAMPLES:
        with tempfile.TemporaryDirectory(prefix="tfdistr-bench-") as name:
            run(Path(name), 1, what)
            cases = itertools.product((1, 2, 3), READS, (False, True))
            found = in_turn(rounds, {
                (workers, system, shuffle): functools.partial(
                    run, Path(name), workers, what, system, int(shuffle),
                    of=OTHERS if system == "torch" else sys.executable,
                )
                for workers, system, shuffle in cases
            })  # fmt: skip
        rows = []
        for workers, system in itertools.product((1, 2, 3), READS):
            (first, speed), (first_shuffled, shuffled) = (
                (
                    statistics.median(
                        max(seconds for seconds, _ in run) for run in found[workers, system, each]
                    ),
                    statistics.median(sum(speed for _, speed in run) for run in found[workers, system, each]),
                )
                for each in (False, True)
            )
            rows.append([
                system, workers, f"{speed:,.0f}", f"{shuffled:,.0f}", f"{shuffled / speed:.2f}",
                f"{first:.1f} s", f"{first_shuffled:.1f} s",
            ])  # fmt: skip
        head = ["", "workers", "in order", "shuffled", "ratio", "first batch", "shuffled"]
        title = f"\n{what} per second, {os.cpu_count()} cores, medians of {rounds} rounds"
        show(title, table(head, rows))


def main() -> None:
    folder, workers, index, what, *how = sys.argv[1:]
    if how:
        system, shuffle = how
        read(what, system, Path(folder), int(workers), int(index), bool(int(shuffle)))
    else:
        {"rows": write_rows, "images": write_images}[what](Path(folder))
        print(json.dumps([0, 0]), flush=True)


if __name__ == "__main__":
    main()
