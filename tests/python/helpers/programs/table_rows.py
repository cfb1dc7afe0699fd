"""Sends rows of tables between workers, and compares the results with sums in NumPy.

Usage: table_rows.py FOLDER COMMUNICATION   as a worker; it writes FOLDER/<index>.json and .npz
"""

import json
import sys
from pathlib import Path
from typing import Any

import tfdistr

FOLDER, COMMUNICATION = Path(sys.argv[1]), sys.argv[2]
strategy = tfdistr.MultiWorkerMirroredStrategy(communication=COMMUNICATION)

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

collectives: Any = strategy.collectives
WORKERS, INDEX = strategy.num_workers, strategy.worker_index
ROWS = 100_000  # of a table that is too large to be sent whole
SUM = tf.distribute.ReduceOp.SUM

# By name: the type of the numbers, the type of the indices, the shape of the table, the number of rows
# of each worker, and from how many rows they are drawn.
TABLES: dict[str, tuple[str, str, tuple[int, ...], list[int], int]] = {
    "float32": ("float32", "int32", (ROWS, 16), [7, 5, 6], 4),
    "float64": ("float64", "int64", (ROWS, 3), [3, 9, 1], 5),
    "odd bfloat16": ("bfloat16", "int64", (ROWS, 3), [2, 5, 3], 3),
    "float16": ("float16", "int32", (ROWS, 4), [2, 1, 3], 9),
    "blocks": ("float32", "int64", (ROWS, 2, 3), [4, 4, 4], 7),
    "scalars": ("float32", "int64", (ROWS,), [3, 4, 5], 4),
    "an empty worker": ("float32", "int32", (ROWS, 16), [7, 0, 2], 5),
    "nobody": ("float32", "int32", (ROWS, 16), [0, 0, 0], 5),
    "most rows": ("float32", "int32", (2000, 64), [3000, 100, 2900], 2000),
    "small": ("float32", "int32", (20, 4), [30, 1, 2], 20),
}


def of_worker(name: str, worker: int) -> tuple[np.ndarray, np.ndarray]:
    """A worker's values, multiples of 1/8 whose sums are exact in all types, and indices."""
    dtype, index_dtype, shape, counts, drawn = TABLES[name]
    rng = np.random.default_rng([worker, len(name)])
    values = rng.integers(-16, 16, (counts[worker], *shape[1:])) / 8
    spread = np.linspace(0, shape[0] - 1, drawn).astype(index_dtype)
    return values.astype(tf.as_dtype(dtype).as_numpy_dtype), spread[rng.integers(0, drawn, counts[worker])]


def own(name: str, values: Any, indices: Any) -> tf.IndexedSlices:
    return tf.IndexedSlices(values, indices, tf.constant(TABLES[name][2]))


def whole(name: str, rows: Any) -> np.ndarray:
    """The sum of rows as a table of float64."""
    if not isinstance(rows, tf.IndexedSlices):
        return np.asarray(rows, np.float64)
    table = np.zeros(TABLES[name][2])
    np.add.at(table, np.asarray(rows.indices), np.asarray(rows.values, np.float64))
    return table


def reduced(names: list[str], add: bool, dtype: tf.DType | None = None) -> tuple[dict[str, Any], list[int]]:
    """What came of rows, whose number is unknown, in the last step of a loop; and what a step sent."""
    given = {name: of_worker(name, INDEX) for name in names}
    specs = [
        tf.TensorSpec([None, *array.shape[1:]], array.dtype) for pair in given.values() for array in pair
    ]

    @tf.function(input_signature=[*specs, tf.TensorSpec([], tf.int32)], autograph=False)
    def loop(*arguments: Any) -> Any:
        *flat, count = arguments

        def step() -> list[Any]:
            slices = [own(n, *flat[2 * k : 2 * k + 2]) for k, n in enumerate(names)]
            return collectives.all_reduce(SUM, [tf.ones([3]), *slices], dtype, add_rows=add)

        first = step()

        def body(number: tf.Tensor, *_: Any) -> Any:
            return number + 1, *tf.nest.flatten(step(), expand_composites=True)

        begin = tf.nest.flatten(first, expand_composites=True)
        shapes = [tf.TensorShape([None] * tensor.shape.rank) for tensor in begin]
        _, *last = tf.while_loop(
            lambda number, *_: number < count, body, [tf.constant(1), *begin], [tf.TensorShape([]), *shapes]
        )
        return tf.nest.pack_sequence_as(first, last, expand_composites=True)

    before = collectives.traffic
    dense, *results = loop(*(array for pair in given.values() for array in pair), tf.constant(3))
    after = collectives.traffic
    assert np.array_equal(dense, np.full(3, WORKERS))
    sent = [(b - a) / 3 for a, b in zip(before, after, strict=True)]
    return dict(zip(names, results, strict=True)), sent


def check(results: dict[str, Any]) -> dict[str, bool]:
    expected = {
        name: sum(whole(name, own(name, *of_worker(name, w))) for w in range(WORKERS)) for name in results
    }
    return {name: np.array_equal(whole(name, got), expected[name]) for name, got in results.items()}


found: dict[str, Any] = {}
arrays: dict[str, np.ndarray] = {}
for add in (True, False):
    kind = "added" if add else "all rows"
    results, found[f"sent {kind}"] = reduced(list(TABLES), add)
    found[kind] = check(results)
    for name, got in results.items():
        if isinstance(got, tf.IndexedSlices):
            arrays[f"{kind}, {name}"] = np.asarray(got.indices)
            arrays[f"values of {kind}, {name}"] = np.asarray(got.values).astype("float64")
            same_type = got.values.dtype == TABLES[name][0] and got.indices.dtype == TABLES[name][1]
            found[f"{kind}, {name}"] = "rows" if same_type else f"{got.values.dtype} {got.indices.dtype}"
        else:
            found[f"{kind}, {name}"] = "a tensor"
results, found["sent as bfloat16"] = reduced(["float32", "most rows"], True, tf.bfloat16)
found["bfloat16"] = check(results)
_, found["sent float32"] = reduced(["float32"], True)
_, found["sent most rows"] = reduced(["most rows"], True)
_, found["sent small"] = reduced(["small"], True)

# Rows whose sums are rounded: the order of the additions shows.
rng = np.random.default_rng(INDEX)
rounded = tf.IndexedSlices(
    tf.constant(rng.normal(size=(40, 5)), tf.float32),
    tf.constant(rng.integers(0, 9, 40)),
    tf.constant([ROWS, 5]),
)
(total,) = collectives.all_reduce(SUM, [rounded], add_rows=True)
arrays["rounded"] = total.values.numpy()[np.argsort(total.indices)]
(every,) = collectives.gather_rows([rounded])
arrays["rows of worker 0"] = every.values[:40].numpy()
found["own rows in their place"] = np.array_equal(
    every.values[40 * INDEX : 40 * (INDEX + 1)], rounded.values
) and np.array_equal(every.indices[40 * INDEX : 40 * (INDEX + 1)], rounded.indices)

np.savez(FOLDER / f"{INDEX}.npz", **arrays)
(FOLDER / f"{INDEX}.json").write_text(json.dumps(found))
strategy.leave()
