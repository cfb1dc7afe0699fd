"""Sparse gradients: what of a table travels between workers, and what they get."""

import json

import numpy as np
import pytest
import tensorflow as tf
from clusters import run_cluster

from tfdistr.collectives.sparse_rows import Layout, is_small, sum_equal_rows, table_shape, whole_table

pytestmark = pytest.mark.timeout(300)

WORKERS = 3
WORD = 4  # bytes


SLOW = pytest.mark.slow(reason="starts the same workers over the ring")


@pytest.fixture(scope="module", params=["mpi", pytest.param("ring", marks=SLOW)])
def workers(request, tmp_path_factory):
    """What each worker found, and its arrays."""
    folder = tmp_path_factory.mktemp(request.param)
    arguments = [str(folder), request.param]
    for ended in run_cluster("table_rows.py", WORKERS, arguments, mpi=request.param == "mpi"):
        assert ended.status == 0, ended.output[-3000:]
    found = [json.loads((folder / f"{index}.json").read_text()) for index in range(WORKERS)]
    return found, [np.load(folder / f"{index}.npz") for index in range(WORKERS)]


@pytest.mark.parametrize("kind", ["added", "all rows", "bfloat16"])
def test_all_workers_get_the_sum_of_all_rows(workers, kind):
    for found in workers[0]:
        assert all(found[kind].values()), found[kind]
        assert len(found[kind]) == (2 if kind == "bfloat16" else 10)


def test_rows_stay_rows_of_their_types_and_small_tables_become_whole(workers):
    for found in workers[0]:
        kinds = {name: found[name] for name in found if name.startswith(("added, ", "all rows, "))}
        assert kinds.pop("added, small") == "a tensor"
        assert set(kinds.values()) == {"rows"}
        assert len(kinds) == 19


def test_added_rows_occur_once_and_others_in_the_order_of_the_workers(workers):
    arrays = workers[1][0]
    assert sorted(arrays["added, float32"]) == sorted(set(arrays["all rows, float32"]))
    tables = ("float32", "an empty worker", "nobody")
    assert [len(arrays[f"all rows, {name}"]) for name in tables] == [18, 9, 0]
    assert all(found["own rows in their place"] for found in workers[0])


def test_all_workers_get_the_same_bits(workers):
    first, *others = workers[1]
    assert len(first.files) == 40  # the indices and values of 19 results, and two
    for other in others:
        for name in first.files:
            np.testing.assert_array_equal(first[name], other[name], err_msg=name)


def test_a_step_sends_its_dense_gradients_with_the_numbers_of_rows_and_then_the_rows(workers):
    counts = WORKERS * WORD
    for index, found in enumerate(workers[0]):
        rows = [4, 3, 4][index]  # so many of the table's rows this worker has; see TABLES
        assert found["sent float32"][0] == 2
        assert found["sent float32"][1] <= 3 * WORD + counts + WORKERS * max(4, rows) * 17 * WORD
        assert found["sent small"] == [1, 3 * WORD + 20 * 4 * WORD]
        assert found["sent all rows"][0] == 2  # of ten tables


def test_more_rows_than_a_table_has_are_sent_as_the_table(workers):
    for found in workers[0]:
        collectives, sent = found["sent most rows"]
        assert collectives == 3
        assert 2000 * 64 * WORD <= sent <= 2000 * 64 * WORD + 100
        collectives, sent = found["sent as bfloat16"]
        assert collectives == 4  # the numbers of rows need more than 8 bits
        assert 2000 * 64 * 2 <= sent <= 2000 * 64 * 2 + 600


def rows(values: object, indices: object, shape: object = None) -> tf.IndexedSlices:
    return tf.IndexedSlices(tf.constant(values), tf.constant(indices), shape)


def test_equal_rows_are_added_in_their_order():
    big = 2.0**24  # to which 1 cannot be added alone
    total = sum_equal_rows(rows([[big], [5.0], [1.0], [1.0]], [3, 1, 3, 3]))
    assert total.indices.numpy().tolist() == [3, 1]
    assert total.values.numpy().tolist() == [[big], [5.0]]
    total = sum_equal_rows(rows([[1.0], [5.0], [1.0], [big]], [3, 1, 3, 3]))
    assert total.values.numpy().tolist() == [[big + 2], [5.0]]


def test_no_rows_are_no_rows():
    nothing = tf.IndexedSlices(tf.zeros([0, 2]), tf.zeros([0], tf.int64), tf.constant([5, 2]))
    assert sum_equal_rows(nothing).values.shape == (0, 2)
    assert whole_table(nothing, 5).numpy().tolist() == [[0.0, 0.0]] * 5


def test_the_size_of_a_table_is_read_from_its_static_shape():
    assert is_small(rows([[1.0] * 64], [0], tf.constant([1024, 64])))
    assert not is_small(rows([[1.0] * 64], [0], tf.constant([1025, 64])))
    assert not is_small(rows([[1.0] * 64], [0]))
    assert table_shape(rows([[1.0] * 2], [0])) is None


@pytest.mark.parametrize(
    ("dtype", "index_dtype", "row", "side", "words"),
    [
        ("float32", "int32", [16], 10**6, 17),
        ("float32", "int64", [16], 10**6, 17),
        ("float32", "int64", [16], 2**40, 18),
        ("float32", "int64", [16], None, 18),
        ("float64", "int32", [3], 10, 7),
        ("bfloat16", "int32", [3], 10, 3),
        ("float16", "int64", [2, 2], 10, 3),
        ("float32", "int32", [], 10, 2),
        ("int64", "int32", [1], 10, 3),
    ],
)
def test_rows_become_words_and_rows_again(dtype, index_dtype, row, side, words):
    indices = tf.constant([3, 0, 7, 2**33 if words == 18 else 9], index_dtype)
    values = tf.cast(tf.reshape(tf.range(4 * int(np.prod(row))), [4, *row]) - 5, dtype)
    slices = tf.IndexedSlices(values, indices, None if side is None else tf.constant([side, *row], tf.int64))
    layout = Layout.of(slices)
    sent = layout.to_words(slices)
    assert (sent.shape, sent.dtype, layout.words) == ((4, words), tf.float32, words)
    back = layout.from_words(sent, slices.dense_shape)
    assert (back.values.dtype, back.indices.dtype) == (dtype, index_dtype)
    np.testing.assert_array_equal(back.indices, indices)
    np.testing.assert_array_equal(tf.cast(back.values, tf.float64), tf.cast(values, tf.float64))


def test_not_a_number_travels_too():
    slices = rows([[np.nan, np.inf], [-np.inf, -0.0]], [1, 0], tf.constant([5, 2]))
    layout = Layout.of(slices)
    back = layout.from_words(layout.to_words(slices), slices.dense_shape)
    assert back.values.numpy().tobytes() == slices.values.numpy().tobytes()


def test_rows_of_an_unknown_width_or_an_unusual_type_have_no_layout():
    assert Layout.of(rows([[True]], [0])) is None
    assert Layout.of(rows([[1j]], [0])) is None
    unknown: list[object] = []

    @tf.function(input_signature=[tf.TensorSpec([None, None]), tf.TensorSpec([None], tf.int32)])
    def trace(values: tf.Tensor, indices: tf.Tensor) -> None:
        unknown.append(Layout.of(tf.IndexedSlices(values, indices)))

    trace.get_concrete_function()
    assert unknown == [None]
