"""Images per second of a pipeline that decodes JPEGs: tfdistr's ctx.shard(), and AutoShardPolicy.DATA.

    make bench

Each worker reads its batches of the same images, 224 x 224 pixels, made from the digits of the
package, and takes part in an all-reduce after each, as in training. Stock TensorFlow decodes every
image on every worker and keeps a part. Both run in turn, several rounds; the first epoch is left out,
and the numbers are medians over the other epochs of all rounds. Then the time to the first batch of a
run that continues at step 1,000,000.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import processes

SIDE = 224
PER_WORKER_BATCH = 32
EPOCHS = 4
SYSTEMS = ("tfdistr", "stock")
FAR = 1_000_000


def write_images(folder: Path) -> None:
    """The training digits, as JPEGs of ``SIDE`` x ``SIDE`` pixels; file names tell the order."""
    import tensorflow as tf

    import tfdistr

    images, _ = tfdistr.load_dataset("digits").arrays()
    large = tf.data.Dataset.from_tensor_slices(images).map(
        lambda image: tf.io.encode_jpeg(
            tf.image.grayscale_to_rgb(tf.cast(tf.image.resize(image, [SIDE, SIDE]) * 15.9, tf.uint8))
        )
    )
    for number, image in enumerate(large):
        (folder / f"{number:04}.jpeg").write_bytes(image.numpy())
    print(len(images), flush=True)


def names(folder: Path) -> Any:
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices(sorted(map(str, folder.glob("*.jpeg"))))


def decode(name: Any) -> Any:
    import tensorflow as tf

    image = tf.io.decode_jpeg(tf.io.read_file(name), channels=3)
    image.set_shape([SIDE, SIDE, 3])
    return image


def pipeline(folder: Path) -> Any:
    """A function of the context, as a user of tfdistr writes it."""
    import tensorflow as tf

    return lambda ctx: ctx.shard(names(folder)).map(decode, num_parallel_calls=tf.data.AUTOTUNE)


def own_batches(folder: Path, workers: int, index: int, start: int = 0) -> Any:
    from tfdistr.data.order.context import WorkerContext
    from tfdistr.data.pipeline.worker_data import make_data

    context = WorkerContext(workers, index, workers * PER_WORKER_BATCH, seed=1)
    return make_data(pipeline(folder), context, start=start).dataset


def stock_batches(folder: Path, workers: int) -> Any:
    import tensorflow as tf

    examples = names(folder).shuffle(2000, seed=1).map(decode, num_parallel_calls=tf.data.AUTOTUNE)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    batches = examples.batch(workers * PER_WORKER_BATCH).repeat().prefetch(tf.data.AUTOTUNE)
    return batches.with_options(options)


def worker(system: str, folder: Path) -> None:
    """One worker: prints the seconds of each epoch."""
    import tensorflow as tf

    import tfdistr

    cluster = tfdistr.cluster_from_env()
    workers = cluster.num_workers
    if system == "tfdistr":
        strategy = tfdistr.MultiWorkerMirroredStrategy()
        dataset = own_batches(folder, workers, cluster.worker_index)
    else:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        dataset = stock_batches(folder, workers)
    images = len(list(folder.glob("*.jpeg")))
    steps = -(-images // (workers * PER_WORKER_BATCH))
    iterator = iter(strategy.experimental_distribute_dataset(dataset))

    @tf.function
    def step() -> tf.Tensor:
        own = strategy.run(lambda batch: tf.reduce_sum(tf.cast(batch, tf.float32)), (next(iterator),))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, own, axis=None)

    seconds = []
    for _ in range(EPOCHS):
        began = time.monotonic()
        for _ in range(steps):
            step()
        seconds.append(time.monotonic() - began)
    print(json.dumps(seconds), flush=True)
    os._exit(0)  # the stock strategy may abort at exit when its peer is gone


def seek(folder: Path) -> None:
    """Prints the seconds to the first batch, from step 0 and from step ``FAR``."""
    found = []
    next(iter(own_batches(folder, 2, 1)))  # imports, and what TensorFlow sets up once
    for start in (0, FAR):
        began = time.monotonic()
        next(iter(own_batches(folder, 2, 1, start)))
        found.append(time.monotonic() - began)
    print(json.dumps(found), flush=True)


def run(folder: Path, what: str, workers: int) -> list[Any]:
    """What each of some workers printed last."""
    command = processes.python("decode.py", "--run", what, "--folder", folder)
    environments = processes.tf_config(workers) if workers > 1 else [{}]
    printed = processes.run([command] * workers, environments)
    return [json.loads(text.splitlines()[-1]) for text in printed]


def main() -> None:
    processes.exit_when_terminated()
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--run", help="what one process does: images, tfdistr, stock or seek")
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    if given.run == "images":
        write_images(given.folder)
    elif given.run == "seek":
        seek(given.folder)
    elif given.run:
        worker(given.run, given.folder)
    else:
        compare(given.rounds)


def compare(rounds: int) -> None:
    epochs: dict[tuple[str, int], list[float]] = {}
    seeks = []
    with tempfile.TemporaryDirectory(prefix="tfdistr-bench-") as name:
        folder = Path(name)
        (images,) = run(folder, "images", 1)
        for _ in range(rounds):
            for workers in (2, 3):
                for system in SYSTEMS:
                    printed = run(folder, system, workers)
                    slowest = [max(seconds) for seconds in zip(*printed, strict=True)]
                    epochs.setdefault((system, workers), []).extend(slowest[1:])
            seeks.append(run(folder, "seek", 1)[0])
    speeds = {key: images / statistics.median(seconds) for key, seconds in epochs.items()}
    print(f"\n{images} JPEGs of {SIDE} x {SIDE} pixels, {PER_WORKER_BATCH} images a worker, "
          f"{os.cpu_count()} cores, medians of {rounds} rounds\n")  # fmt: skip
    print(f"{'':26}{'workers':>8}{'images/s':>10}{'x stock':>9}")
    for (system, workers), speed in speeds.items():
        label = {"tfdistr": "ctx.shard()", "stock": "AutoShardPolicy.DATA"}[system]
        print(f"{label:26}{workers:8}{speed:10,.0f}{speed / speeds['stock', workers]:9.2f}")
    near, far = (statistics.median(seconds) for seconds in zip(*seeks, strict=True))
    print(f"\nTo the first batch: {near:.2f} s from step 0, {far:.2f} s from step {FAR:,}")


if __name__ == "__main__":
    main()
