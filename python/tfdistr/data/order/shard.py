"""The split of a dataset over the workers, and the reason for it.

TensorFlow's default policy (AUTO) becomes FILE if a pipeline reads files. It fails if there are fewer files
than workers, and its batches are not the batches of a single worker. Here the default splits every global
batch by rows: the batches are exact with any number of files.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.data.trees import leaves
from tfdistr.errors import ArgumentError, DataShardError
from tfdistr.utils.arguments import check_bool, check_choice, check_int
from tfdistr.utils.describe import describe, number_of
from tfdistr.utils.warn import NOTE

log = logging.getLogger("tfdistr")

#: A share of a batch, or consecutive shares: those of a worker's virtual workers.
Own = int | range

Policy = tf.data.experimental.AutoShardPolicy
POLICIES = ("auto", "file", "data", "hint", "off")

_RULE = "Cannot split a batch over workers: not all of its parts have a row for each example."
_FIX = (
    "Repeat what all rows share for each row, or make it a weight of the model. If each batch is one graph, "
    "train with one worker, or make batches of graphs that are padded to the same number of nodes."
)
#: The number of batches that show whether each is one graph.
_LOOKED_AT = 2

# Datasets that are already one worker's share. A set, because a dataset cannot hold a mark.
_shares: weakref.WeakSet[tf.data.Dataset] = weakref.WeakSet()
# Datasets whose new seeds were noted.
_noted: weakref.WeakSet[tf.data.Dataset] = weakref.WeakSet()


def auto_shard(
    dataset: tf.data.Dataset, num_workers: int | None = None, policy: str = "auto", exact: bool = True
) -> tf.data.Dataset:
    """Choose how a dataset is split over the workers.

    TensorFlow's policy AUTO fails for a data set that has fewer files than there are workers. This function
    chooses a policy from the files that the pipeline reads.

    Args:
        dataset: A ``tf.data.Dataset``.
        num_workers: Number of workers; by default the number of workers of the current strategy.
        policy: "auto" chooses a policy; "file", "data", "hint" and "off" are TensorFlow's policies. Under
            tfdistr's strategy for several workers, "off" splits rows as "data" does.
        exact: With "auto", keep the global batches of a single worker (policy DATA), even if each worker
            could read separate files. Policy FILE reads less, but its batches have other examples.

    Returns:
        The dataset with its auto-shard policy set. The choice and its reason are logged once.

    Raises:
        ArgumentError: An argument is not of the form above.
        DataShardError: The policy cannot work with this pipeline and number of workers.

    Example:
        >>> dataset = tfdistr.auto_shard(tf.data.TFRecordDataset("train.tfrecord"), num_workers=4)
        >>> dataset.options().experimental_distribute.auto_shard_policy
        <AutoShardPolicy.DATA: 2>
    """
    if not isinstance(dataset, tf.data.Dataset):
        raise ArgumentError(
            "`dataset` must be a tf.data.Dataset.",
            received=describe(dataset),
            fix="Make one, for example with tf.data.Dataset.from_tensor_slices().",
        )
    check_choice("policy", policy, POLICIES)
    check_bool("exact", exact)
    if num_workers is None:
        strategy = tf.distribute.get_strategy()
        num_workers = getattr(strategy, "num_workers", strategy.num_replicas_in_sync)
    workers = check_int("num_workers", num_workers)
    if policy == "auto":
        chosen, reason = choose_policy(tf_internals.source_files(dataset), workers, exact)
        log.info("auto_shard: policy %s for %d workers: %s", chosen.name, workers, reason)
    else:
        chosen = Policy[policy.upper()]
        if chosen is Policy.FILE:
            check_files(tf_internals.source_files(dataset), workers)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = chosen
    return dataset.with_options(options)


def choose_policy(
    files: int, workers: int, exact: bool = True
) -> tuple[tf.data.experimental.AutoShardPolicy, str]:
    """Return the policy for a pipeline that reads ``files`` files on ``workers`` workers, and the reason."""
    if workers == 1:
        return Policy.OFF, "one worker has all the data"
    if files == 0:
        return Policy.DATA, "the pipeline reads no files"
    if files < workers:
        return Policy.DATA, f"{number_of(files, 'file')} cannot be shared out to {workers} workers"
    if files % workers:
        return Policy.DATA, f"{number_of(files, 'file')} would be shared out unevenly to {workers} workers"
    if exact:
        shared = f"exact=False would share out {number_of(files, 'file')}"
        return Policy.DATA, f"it keeps the batches of one worker; {shared}"
    return Policy.FILE, f"each worker reads {number_of(files // workers, 'file')} of its own"


def check_files(files: int, workers: int) -> None:
    """Raise ``DataShardError`` if policy FILE cannot give every worker a file."""
    if files >= workers:
        return
    raise DataShardError(
        "The auto-shard policy FILE needs at least one file for each worker.",
        received=f"{number_of(files, 'file')}, {workers} workers",
        fix="Use tfdistr.auto_shard(dataset), or write the data to at least as many files as workers.",
    )


def leave_to_tensorflow(dataset: tf.data.Dataset, num_workers: int, *, fits: bool = False) -> bool:
    """Return whether TensorFlow splits the dataset, as its auto-shard policy says.

    Without a ``shard(SHARD_HINT, SHARD_HINT)`` HINT means the same as OFF: there every worker would read
    all rows. So the rows are split, for the result of one worker.
    """
    policy = dataset.options().experimental_distribute.auto_shard_policy
    if num_workers == 1 or policy in (Policy.AUTO, Policy.DATA):
        return False
    if policy is Policy.FILE:
        check_files(tf_internals.source_files(dataset), num_workers)
        return True
    if fits:
        check_no_hint(dataset)
    if tf_internals.waits_for_shards(dataset):
        return True
    log.warning(
        "auto-shard policy %s: each worker takes its rows of every global batch, as under DATA.",
        Policy(policy).name, extra=NOTE,
    )  # fmt: skip
    return False


def check_no_hint(dataset: tf.data.Dataset) -> None:
    """Refuse a ``shard(SHARD_HINT, SHARD_HINT)``: its batches have other rows than those of one worker."""
    if tf_internals.waits_for_shards(dataset):
        raise DataShardError(
            "Cannot use shard(SHARD_HINT, SHARD_HINT): its batches have other rows than those of one worker.",
            received="a dataset whose shards TensorFlow is to fill in",
            fix="Leave this shard() out. Each worker takes its rows of every global batch.",
        )


def distribute_batches(
    dataset: tf.data.Dataset, shares: int, own: Own, again: Callable[[], tf.data.Dataset] | None = None
) -> tf.data.Dataset:
    """Take the rows of one worker from each batch of ``dataset``; see ``bounds`` and ``check_parts``.

    Every worker gets as many batches as the dataset has. If a batch has fewer rows than there are workers,
    some workers get an empty batch. Rows stay in order: the workers' shares, one after the other, are the
    global batch.
    """
    if _is_all(shares, own):
        return dataset
    check_no_hint(dataset)
    scalars = [s for s in tf.nest.flatten(dataset.element_spec) if getattr(s, "shape", None) == ()]
    if scalars:
        raise DataShardError(
            "A dataset that is split over several workers must be batched (with the global batch size).",
            received=f"elements of {dataset.element_spec}",
            fix="Call dataset.batch(batch_size) before fit().",
        )

    _, reason = choose_policy(tf_internals.source_files(dataset), shares)
    dataset = in_common_order(dataset, shares, own)
    check_parts(dataset, again)
    sharers = "virtual workers" if isinstance(own, range) else "workers"
    log.info("Each of %d %s takes its rows of every global batch: %s", shares, sharers, reason)
    return mark_share(rows_of_worker(dataset, shares, own).prefetch(tf.data.AUTOTUNE))


def check_order(dataset: tf.data.Dataset, num_workers: int) -> None:
    """Raise ``DataShardError`` if the workers would see the elements in different orders."""
    parts = tf_internals.unseeded_parts(dataset) if num_workers > 1 else []
    if parts:
        raise DataShardError(
            "A dataset that is split over several workers must be in the same order on all of them.",
            received=f"{' and '.join(parts)} without a seed, made before the strategy",
            fix="Pass seed=1 to it, or make the dataset after the strategy.",
        )


def in_common_order(dataset: tf.data.Dataset, shares: int, own: Own) -> tf.data.Dataset:
    """Return a dataset with the same order on all workers, whose caches have a file for each worker."""
    if _is_all(shares, own):
        return dataset
    first = own.start if isinstance(own, range) else own
    parts, files = tf_internals.unseeded_parts(dataset), tf_internals.cache_files(dataset)
    seed = tf_internals.global_seed()
    if parts and seed is None:
        check_order(dataset, shares)
    if parts and first == 0 and dataset not in _noted:
        _noted.add(dataset)
        log.warning("%s without a seed gets the common seed of the workers.", " and ".join(parts), extra=NOTE)
    if not parts and (not files or first == 0):
        return dataset
    return tf_internals.rewritten(dataset, seed, f".worker-{first}" if first else "")


def common_seeds(dataset: tf.data.Dataset) -> str | None:
    """Return the seeds that all workers must have in common; None if each worker has other elements."""
    policy = dataset.options().experimental_distribute.auto_shard_policy
    if policy is Policy.FILE or is_share(dataset):
        return None
    return str(tf_internals.order_seeds(dataset))


def rows_of_worker(batches: tf.data.Dataset, shares: int, own: Own) -> tf.data.Dataset:
    """Take the rows of one worker from each batch; see ``bounds``."""
    if _is_all(shares, own):
        return batches

    def rows(*batch: object) -> Any:
        # map() passes the components of a tuple one by one, but other structures whole.
        whole = batch if isinstance(batches.element_spec, tuple) else batch[0]
        assert_rows(whole)
        return take_rows(whole, shares, own)

    return batches.map(rows)


def take_rows(batch: object, shares: int, own: Own) -> object:
    """Take the rows of one worker from every tensor of a nested ``batch``; see ``bounds``."""
    return cut_rows(batch, lambda rows: bounds(rows, shares, own))


def cut_rows(batch: Any, between: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]) -> object:
    """Cut the rows ``between`` out of every tensor (dense, ragged or sparse) of a nested ``batch``."""

    def rows(value: Any) -> Any:
        if value is None:
            return None
        first, end = between(_count(value))
        if isinstance(value, tf.SparseTensor):
            start = tf.concat([[first], tf.zeros_like(value.dense_shape[1:])], 0)
            return tf.sparse.slice(value, start, tf.concat([[end - first], value.dense_shape[1:]], 0))
        return value[first:end]

    return tf.nest.map_structure(rows, batch)


def _is_all(shares: int, own: Own) -> bool:
    """Return whether a worker has all shares."""
    return shares == (len(own) if isinstance(own, range) else 1)


def bounds(rows: Any, shares: int, own: Own) -> tuple[Any, Any]:
    """Return the first row and the end of a share, or of several; shares differ by at most one row."""
    first, end = (own.start, own.stop) if isinstance(own, range) else (own, own + 1)
    return rows * first // shares, rows * end // shares


def mark_share(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Mark a dataset as one worker's share. The strategy passes it to Keras unchanged."""
    _shares.add(dataset)
    return dataset


def is_share(dataset: tf.data.Dataset) -> bool:
    """Return whether ``mark_share`` marked a dataset, or a dataset from which it was made."""
    return any(node in _shares for node in tf_internals.walk_pipeline(dataset))


# --- The parts of a batch, which are split by rows together: each must have a row for each example


def check_parts(dataset: tf.data.Dataset, again: Callable[[], tf.data.Dataset] | None = None) -> None:
    """Refuse batches that cannot be split by rows, as far as their types or the first batches show."""
    specs = _named(dataset.element_spec)
    shapes = {name: spec.shape for name, spec in specs if hasattr(spec, "shape")}
    sizes = {name: shape[0] for name, shape in shapes.items() if shape.rank}
    known = set(sizes.values()) - {None}
    if len(known) > 1:
        raise _different(sizes)
    may_be_graphs = any(shape.rank == 2 and shape.as_list() == [None, None] for shape in shapes.values())
    if may_be_graphs or (known and None in sizes.values()):
        found = tf_internals.first_elements(dataset, _LOOKED_AT)
        if not found and again is not None:
            with tf_internals.undisturbed_random_numbers():
                found = list(again().take(_LOOKED_AT))
        check_rows(found)


def check_rows(batches: Sequence[object]) -> None:
    """Refuse batches of arrays or tensors that cannot be split by rows.

    Each batch is one graph if a part has as many columns as rows, in batches of different sizes.
    """
    shapes: dict[str, list[tuple[Any, ...]]] = {}
    for batch in batches:
        sizes = {name: _rows(part) for name, part in _named(batch)}
        if len(set(sizes.values())) > 1:
            raise _different(sizes)
        for name, part in _named(batch):
            shapes.setdefault(name, []).append(tuple(part.shape))
    for name, found in shapes.items():
        square = all(len(shape) == 2 and shape[0] == shape[1] for shape in found)
        if square and len(set(found)) > 1:
            received = f"`{name}` of the shapes {' and '.join(map(str, found))}"
            raise DataShardError(_RULE, received=received, fix=_FIX)


def assert_rows(batch: object) -> None:
    """Refuse a batch of tensors, within a graph, whose parts have different numbers of rows."""
    parts = _named(batch)
    first_name, first = parts[0]
    for name, part in parts[1:]:
        tf.debugging.assert_equal(
            _count(part), _count(first), f"{_RULE} Received: `{name}` beside `{first_name}`. Fix: {_FIX}"
        )


def _different(sizes: Mapping[str, int | None]) -> DataShardError:
    described = ", ".join(f"`{name}`: {size} rows" for name, size in sizes.items() if size is not None)
    return DataShardError(_RULE, received=described, fix=_FIX)


def _named(batch: object) -> list[tuple[str, tf.Tensor]]:
    """Return the parts of ``x``, ``(x, y)`` or ``(x, y, sample_weight)`` with their names."""
    parts = batch if isinstance(batch, tuple) else (batch,)
    pairs = zip(("x", "y", "sample_weight"), parts, strict=False)
    return [leaf for name, part in pairs for leaf in leaves(part, name)]


def _rows(part: Any) -> int:
    if isinstance(part, tf.RaggedTensor | tf.SparseTensor):
        return int(_count(part))
    return int(part.shape[0])


def _count(part: object) -> tf.Tensor:
    if isinstance(part, tf.RaggedTensor):
        return tf.cast(part.nrows(), tf.int64)
    return part.dense_shape[0] if isinstance(part, tf.SparseTensor) else tf.shape(part, tf.int64)[0]
