"""Rows and images per second of data sets in files, and training from files that are larger than the memory.

    make bench T=data

Each worker reads its batches on a core of its own, for some seconds after its first batch; all of them at the
same time, without a model. tfdistr reads a worker's part of the global batches. tf.data is used as
AutoShardPolicy.DATA does: each worker reads all examples and keeps its part. PyTorch's DataLoader has a
DistributedSampler, and a dataset that decodes the row group of a row and keeps the last eight. All decode
images with TensorFlow, one thread each. Then two workers, each of whose memory has a limit, train from files
that are ten times as large.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import decode
import processes

ROWS, COLUMNS, GROUP = 9_000_000, 16, 100_000
PER_WORKER_BATCH = 256
IMAGES_OF_BATCH = 32
SECONDS = 8.0
SYSTEMS = ("tfdistr", "tf.data", "torch")
OTHERS = str(Path(__file__).parents[1] / ".cache/bench/bin/python")
#: Of the second part: bytes that a worker may have beside what it has before the training, and of the files.
LIMIT = 300 * 1024**2
LARGE = 10 * LIMIT
WIDTH = 1024  # numbers of a row

Read = Callable[[Path, int, int, bool], Iterator[int]]


# --- The files


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
    decode.write_images(folder)
    for number, path in enumerate(sorted(folder.glob("*.jpeg"))):
        (folder / str(number % 10)).mkdir(exist_ok=True)
        path.rename(folder / str(number % 10) / path.name)


# --- What reads them: the number of examples of each batch


def tfdistr_reads(described: Any, workers: int, index: int, shuffle: bool, batch: int) -> Iterator[int]:
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


def rows_of_tfdistr(folder: Path, workers: int, index: int, shuffle: bool) -> Iterator[int]:
    import tfdistr

    described = tfdistr.load_dataset("parquet", files=folder, target="y")
    return tfdistr_reads(described, workers, index, shuffle, PER_WORKER_BATCH)


def images_of_tfdistr(folder: Path, workers: int, index: int, shuffle: bool) -> Iterator[int]:
    import tfdistr

    described = tfdistr.load_dataset("image_folder", files=folder)
    return tfdistr_reads(described, workers, index, shuffle, IMAGES_OF_BATCH)


def tf_data_reads(examples: Any, workers: int, index: int, batch: int) -> Iterator[int]:
    import tensorflow as tf

    dataset = examples.repeat().shard(workers, index).batch(batch).prefetch(tf.data.AUTOTUNE)
    for x, _ in dataset:
        yield len(x)


def rows_of_tf_data(folder: Path, workers: int, index: int, shuffle: bool) -> Iterator[int]:
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
    examples = examples.shuffle(10_000, seed=1) if shuffle else examples
    return tf_data_reads(examples, workers, index, PER_WORKER_BATCH)


def images_of_tf_data(folder: Path, workers: int, index: int, shuffle: bool) -> Iterator[int]:
    import tensorflow as tf

    paths = sorted(folder.glob("*/*.jpeg"))
    names = tf.data.Dataset.from_tensor_slices(
        ([*map(str, paths)], [int(path.parent.name) for path in paths])
    )
    names = names.shuffle(len(paths), seed=1) if shuffle else names
    examples = names.map(lambda name, label: (decode.decode(name), label), tf.data.AUTOTUNE)
    return tf_data_reads(examples, workers, index, IMAGES_OF_BATCH)


def torch_reads(dataset: Any, workers: int, index: int, shuffle: bool, batch: int) -> Iterator[int]:
    import torch

    sampler = torch.utils.data.DistributedSampler(dataset, workers, index, shuffle=shuffle)
    while True:
        for x, _ in torch.utils.data.DataLoader(dataset, batch, sampler=sampler):
            yield len(x)


def rows_of_torch(folder: Path, workers: int, index: int, shuffle: bool) -> Iterator[int]:
    import functools

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

    return torch_reads(Rows(), workers, index, shuffle, PER_WORKER_BATCH)


def images_of_torch(folder: Path, workers: int, index: int, shuffle: bool) -> Iterator[int]:
    paths = [str(path) for path in sorted(folder.glob("*/*.jpeg"))]

    class Images:
        def __len__(self) -> int:
            return len(paths)

        def __getitem__(self, number: int) -> Any:
            return decode.decode(paths[number]).numpy(), int(Path(paths[number]).parent.name)

    return torch_reads(Images(), workers, index, shuffle, IMAGES_OF_BATCH)


READERS: dict[str, dict[str, Read]] = {
    "rows": {"tfdistr": rows_of_tfdistr, "tf.data": rows_of_tf_data, "torch": rows_of_torch},
    "images": {"tfdistr": images_of_tfdistr, "tf.data": images_of_tf_data, "torch": images_of_torch},
}


def read(what: str, system: str, folder: Path, workers: int, index: int, shuffle: bool) -> None:
    """One worker: prints the seconds to its first batch, and the examples per second after it."""
    import tensorflow as tf

    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    began = time.monotonic()
    batches = READERS[what][system](folder, workers, index, shuffle)
    next(batches)
    first = time.monotonic()
    examples = 0
    while time.monotonic() < first + SECONDS:
        examples += next(batches)
    print(json.dumps([first - began, examples / (time.monotonic() - first)]), flush=True)
    os._exit(0)  # threads may be reading ahead


# --- Files that are larger than the memory


def write_large(folder: Path) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    draw, rows = np.random.default_rng(0), LARGE // (4 * WIDTH)
    writer = None
    for first in range(0, rows, 2000):
        x = draw.normal(size=(min(2000, rows - first), WIDTH)).astype(np.float32)
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), WIDTH)
        table = pa.table({"x": vectors, "y": x[:, 0]})
        writer = writer or pq.ParquetWriter(folder / "large.parquet", table.schema, compression="none")
        writer.write_table(table)
    assert writer is not None
    writer.close()


def limited_model() -> Any:
    """A model of one layer, in a process that may have no more memory than ``LIMIT`` beyond what it has."""
    import re

    import keras

    status = Path("/proc/self/status").read_text()
    has = int(re.search(r"VmData:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]
    resource.setrlimit(resource.RLIMIT_DATA, (has + LIMIT, has + LIMIT))
    with contextlib.suppress(MemoryError):
        bytearray(2 * LIMIT)
        raise RuntimeError("the limit of the memory does not hold")
    x = keras.Input((WIDTH,), name="x")
    model = keras.Model({"x": x}, keras.layers.Dense(1)(x))
    model.compile(keras.optimizers.SGD(1e-3), "mse")
    return model


def large(folder: Path) -> None:
    """Two workers train from the large files; prints the losses and the seconds of the epochs."""
    import keras

    import tfdistr

    class Clock(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.began = time.monotonic()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            logs["seconds"] = time.monotonic() - self.began

    described = tfdistr.load_dataset("parquet", files=folder, target="y")
    fit = tfdistr.distributed_fit(
        limited_model, described, cluster=tfdistr.local_cluster(2), batch_size=512, epochs=2, seed=1,
        verbose=0, callbacks=[Clock()],
    )  # fmt: skip
    size = sum(described.sizes)
    print(json.dumps({"bytes": size, "examples": described.examples, "history": fit.history}), flush=True)


# --- All of it


def run(folder: Path, workers: int, *what: object, of: str = sys.executable) -> list[Any]:
    """What each of some workers printed last."""
    command = processes.python("data.py", "--folder", folder, "--workers", workers, "--run", *what, of=of)
    commands = [[*command, "--index", str(index)] for index in range(workers)]
    if len(what) > 1:  # they read; the others use all cores
        commands = [processes.pinned(command, index) for index, command in enumerate(commands)]
    return [json.loads(text.splitlines()[-1]) for text in processes.run(commands, timeout=900)]


def compare(rounds: int) -> None:
    with tempfile.TemporaryDirectory(prefix="tfdistr-bench-") as name:
        for what in READERS:
            folder = Path(name, what)
            folder.mkdir()
            run(folder, 1, f"write_{what}")
            found: dict[tuple[str, int, bool], list[tuple[float, float]]] = {}
            for _ in range(rounds):
                for workers in (1, 2, 3):
                    for system in SYSTEMS:
                        for shuffle in (False, True):
                            of = OTHERS if system == "torch" else sys.executable
                            printed = run(folder, workers, what, system, int(shuffle), of=of)
                            first = max(seconds for seconds, _ in printed)
                            speed = sum(speed for _, speed in printed)
                            found.setdefault((system, workers, shuffle), []).append((first, speed))
            print_table(what, found, rounds)
        folder = Path(name, "large")
        folder.mkdir()
        run(folder, 1, "write_large")
        (made,) = run(folder, 1, "large")
    history = made["history"]
    print(f"\n{made['bytes'] / 1024**2:,.0f} MB of Parquet files, two workers that may each have "
          f"{LIMIT / 1024**2:,.0f} MB beyond what they have before the training: "
          f"losses {', '.join(f'{loss:.3f}' for loss in history['loss'])}; "
          f"seconds {', '.join(f'{seconds:.1f}' for seconds in history['seconds'])}")  # fmt: skip


def print_table(
    what: str, found: dict[tuple[str, int, bool], list[tuple[float, float]]], rounds: int
) -> None:
    print(f"\n{what} per second, {os.cpu_count()} cores, medians of {rounds} rounds\n")
    names = f"{'in order':>12}{'shuffled':>12}{'ratio':>7}{'first batch':>13}{'shuffled':>10}"
    print(f"{'':10}{'workers':>8}{names}")
    for system, workers in dict.fromkeys((system, workers) for system, workers, _ in found):
        (first, speed), (first_shuffled, shuffled) = (
            map(statistics.median, zip(*found[system, workers, shuffle], strict=True))
            for shuffle in (False, True)
        )
        print(f"{system:10}{workers:8}{speed:12,.0f}{shuffled:12,.0f}{shuffled / speed:7.2f}"
              f"{first:11.1f} s{first_shuffled:8.1f} s")  # fmt: skip


def main() -> None:
    processes.exit_when_terminated()
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--index", type=int)
    parser.add_argument("--run", nargs="*", help="what one process does")
    given = parser.parse_args()
    match given.run:
        case None:
            compare(given.rounds)
        case [name]:
            programs = {"write_rows": write_rows, "write_images": write_images, "write_large": write_large}
            if name == "large":
                large(given.folder)
            else:
                programs[name](given.folder)
                print(json.dumps("written"), flush=True)
        case [what, system, shuffle]:
            read(what, system, given.folder, given.workers, given.index, bool(int(shuffle)))


if __name__ == "__main__":
    main()
