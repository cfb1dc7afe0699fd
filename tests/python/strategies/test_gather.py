"""gather() where it cannot gather. (tests/equality has losses over the batch, on several workers.)"""

import json
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from clusters import run_cluster

import tfdistr

pytestmark = pytest.mark.timeout(300)

ROWS = np.arange(6, dtype="float32").reshape(3, 2)


def test_on_one_worker_it_returns_its_input():
    assert tfdistr.gather(ROWS).numpy().tolist() == ROWS.tolist()
    with tfdistr.make_strategy("one_device", device="cpu:0").scope():
        assert tfdistr.gather([True, False]).numpy().tolist() == [True, False]


@pytest.mark.parametrize(
    ("value", "received"),
    {
        "ragged": (tf.ragged.constant([[1], [2, 3]]), "RaggedTensor"),
        "sparse": (tf.sparse.from_dense([[0, 1]]), "SparseTensor"),
        "a number": (1.0, "a float32 of shape ()"),
        "text": (["a", "b"], "a string of shape (2,)"),
        "no tensor": (object(), "an object of class object"),
    }.values(),
)
def test_what_is_no_dense_tensor_of_rows_is_refused(value: Any, received: str):
    with pytest.raises(tfdistr.ArgumentError, match="must be a dense tensor of numbers") as error:
        tfdistr.gather(value)
    assert received in error.value.received
    assert "to_tensor(shape=...)" in error.value.fix


def test_outside_of_a_step_it_is_refused(tmp_path):
    files = [tmp_path / f"{index}.json" for index in range(2)]
    ended = run_cluster("gather.py", 2, *[[str(file)] for file in files], mpi=True, timeout=120)
    assert [worker.status for worker in ended] == [0] * len(ended), ended[0].output[-3000:]
    for told in [json.loads(file.read_text()) for file in files]:
        rule = "gather() must be called in a step of Keras's fit(), evaluate() or predict()."
        assert told["scope"] == [rule, "a call in the scope of a strategy, for 2 replicas"]
        assert told["loop"] == [rule, "a call in strategy.run(), for 2 replicas"]
        assert told["all_gather"] == [[0.0], [1.0]]
        assert told["outside"] == [[5.0]]
