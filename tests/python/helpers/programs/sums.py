"""Sums over ranks, on one or several hosts, and compares them with sums in NumPy. Each rank prints JSON.

Usage: sums.py [sizes|hidden]   ("sizes": they differ; "hidden": rank 1 does not see the others' files)
"""

import json
import os
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from mpi4py import MPI

from tfdistr.collectives.mpi.message_sums import OF_HALVES, PLAIN, InOrderAddition
from tfdistr.collectives.mpi.two_levels import sums_of
from tfdistr.collectives.sum_tree import SumTree
from tfdistr.errors import JobMismatchError

comm = MPI.COMM_WORLD
rank, ranks = comm.Get_rank(), comm.Get_size()
KINDS = ("float32", "float64", "int64", "complex64")
# The last one takes several pieces.
SIZES = (1, 20_001, 300_001)


def wait(done: Callable[[], bool]) -> None:
    while not done():
        time.sleep(1e-4)  # many ranks share few cores


def numbers(size: int, kind: Any, of: int = rank) -> np.ndarray[Any, Any]:
    return (100 * np.random.default_rng([of, size]).normal(size=size)).astype(kind)


def alike(total: np.ndarray[Any, Any]) -> bool:
    return len(set(comm.allgather(zlib.crc32(total.tobytes())))) == 1


def is_plain_sum(size: int, kind: str) -> bool:
    total = sums.add(numbers(size, kind)[np.newaxis], PLAIN)
    expected = sum(numbers(size, kind, of) for of in range(ranks))
    return alike(total) and bool(np.allclose(total, expected, rtol=1e-4, atol=1e-3))


def is_sum_of_halves(size: int, kind: Any) -> bool:
    total = sums.add(numbers(size, kind)[np.newaxis], OF_HALVES).astype("float32")
    each = [numbers(size, kind, of).astype("float32") for of in range(ranks)]
    # Two roundings, each of half a unit in the last place.
    most = 2 * float(ml_dtypes.finfo(kind).eps) * sum(map(np.abs, each))
    return alike(total) and bool((np.abs(total - sum(each)) <= most).all())


def is_ordered_sum(size: int, kind: Any, leaves: int) -> bool:
    tree = SumTree(leaves, ranks)

    def value(node: tuple[int, int]) -> np.ndarray[Any, Any]:
        return numbers(size, kind, node[0])

    rows = np.stack([tree.total(value, np.add, node) for node in tree.nodes(rank)])
    return sums.add(rows, InOrderAddition(tree)).tobytes() == tree.total(value, np.add).tobytes()


def hide(path: str, *more: object) -> None:
    raise FileNotFoundError(path)


what = sys.argv[1] if len(sys.argv) > 1 else "sums"
if what == "hidden" and rank == 1:
    os.open = hide  # type: ignore[assignment]
sums = sums_of(comm, wait)
found: dict[str, Any] = {"how": type(sums).__name__}
if what == "sums":
    halves = ("float16", ml_dtypes.bfloat16)
    found["plain"] = all(is_plain_sum(size, kind) for kind in KINDS for size in SIZES)
    found["halves"] = all(is_sum_of_halves(size, kind) for kind in halves for size in SIZES)
    found["ordered"] = all(
        is_ordered_sum(size, kind, leaves)
        for kind in ("float32", ml_dtypes.bfloat16) for size in SIZES for leaves in (ranks, 8, 13)
    )  # fmt: skip
    # MPI's own windows have names.
    found["named"] = "mpich_shar" in Path("/proc/self/maps").read_text()
elif what == "sizes":
    sums.add(np.ones((1, 3), "float32"), PLAIN)
    try:
        sums.add(np.ones((1, 3 + rank), "float32"), PLAIN)
    except JobMismatchError as error:
        found["error"] = str(error)
sums.free()
print("found " + json.dumps(found), flush=True)
MPI.Finalize()
