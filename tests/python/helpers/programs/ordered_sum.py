"""Sums arrays of virtual workers, and compares the bits with sums in NumPy.

Usage: ordered_sum.py FOLDER LEAVES                     as a worker of a ring; it writes FOLDER/<index>.json
       ordered_sum.py --cluster FOLDER WORKERS LEAVES   a ring of workers
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

SIZES = {"few": 1000, "many": 600_002}
KINDS = ("float32", "float64", "bfloat16", "int64")


def main(folder: Path, leaves: int) -> None:
    import tensorflow as tf

    import tfdistr
    from tfdistr.collectives.interface import add_pairs
    from tfdistr.collectives.sum_tree import SumTree

    strategy = tfdistr.MultiWorkerMirroredStrategy(communication="ring")
    collectives: Any = strategy.collectives
    tree = SumTree(leaves, strategy.num_workers)

    def value(leaf: int, size: int, kind: str) -> tf.Tensor:
        drawn = tf.random.stateless_normal([size], [leaf, size]) * 1000
        return tf.cast(drawn, kind)

    @tf.function(autograph=False)
    def summed(size: int, kind: str) -> list[tf.Tensor]:
        nodes = [
            tree.total(lambda leaf: [value(leaf[0], size, kind)], add_pairs, node)
            for node in tree.nodes(strategy.worker_index)
        ]
        return collectives.sum_in_order(tree, nodes)

    found: dict[str, Any] = {"workers": strategy.num_workers, "same": {}, "bytes": {}}
    for name, size in SIZES.items():
        for kind in KINDS:
            [total] = summed(size, kind)
            leaves_of_kind = [value(leaf, size, kind).numpy() for leaf in range(leaves)]
            expected = add_leaves(tree, leaves_of_kind)
            found["same"][f"{name} {kind}"] = total.numpy().tobytes() == expected.tobytes()
        strategy.barrier(f"begin {name}", 60)
        before = sent()
        strategy.barrier(f"counted {name}", 60)  # until then no worker sends
        summed(size, "float32")
        strategy.barrier(f"end {name}", 60)
        found["bytes"][name] = sent() - before
    (folder / f"{strategy.worker_index}.json").write_text(json.dumps(found))


def add_leaves(tree: Any, values: list[Any]) -> Any:
    return tree.total(lambda leaf: values[leaf[0]], lambda a, b: a + b)


def sent() -> int:
    """Bytes that crossed the loopback device."""
    [loopback] = [line for line in Path("/proc/net/dev").read_text().splitlines() if "lo:" in line]
    return int(loopback.split()[9])


def cluster(folder: Path, workers: int, leaves: int) -> None:
    """A ring in this network namespace."""
    sys.path.append(str(Path(__file__).parents[1]))
    from clusters import run_cluster

    for ended in run_cluster(
        "ordered_sum.py", workers, [str(folder), str(leaves)], timeout=200, start_warm=False
    ):
        print(ended.output[-3000:])
        assert ended.status == 0


if __name__ == "__main__":
    if sys.argv[1] == "--cluster":
        cluster(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    else:
        main(Path(sys.argv[1]), int(sys.argv[2]))
