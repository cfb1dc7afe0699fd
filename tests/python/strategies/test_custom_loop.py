"""Strategies by name, datasets for a loop of one's own, and who is the chief; training: test_losses.py."""

import pytest
import tensorflow as tf
from refusals import assert_says

import tfdistr
from tfdistr.errors import ArgumentError, ClusterConfigError


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", "")


def as_worker(monkeypatch: pytest.MonkeyPatch, index: int) -> None:
    plan = tfdistr.tf_config(worker=["127.0.0.1:10001", "127.0.0.1:10002"])
    monkeypatch.setenv("TF_CONFIG", plan[index].to_json())


def test_a_strategy_by_name_is_that_of_the_class():
    strategy = tfdistr.make_strategy("multi_worker_mirrored", communication="ring", start_timeout=7.0)
    assert type(strategy) is tfdistr.MultiWorkerMirroredStrategy
    assert type(tfdistr.make_strategy()) is tfdistr.MultiWorkerMirroredStrategy


@pytest.mark.parametrize("name", ["central", None, "MultiWorkerMirroredStrategy"])
def test_an_unknown_strategy_is_refused_with_those_there_are(name):
    with pytest.raises(ArgumentError) as caught:
        tfdistr.make_strategy(name)
    assert_says(caught.value, ["`name` must be one of 'multi_worker_mirrored', ", f"Received: {name!r}"])


def test_an_unknown_option_is_refused_with_those_there_are():
    with pytest.raises(ArgumentError, match="The strategy 'multi_worker_mirrored' has the") as caught:
        tfdistr.make_strategy("multi_worker_mirrored", timeout=3, start_timeout=3)
    assert caught.value.received == "'timeout'"


def test_the_strategy_of_parameter_servers_is_made_by_their_chief():
    with pytest.raises(ClusterConfigError, match="Only the chief can create the strategy of") as caught:
        tfdistr.make_strategy("parameter_server")
    assert caught.value.received == "no cluster in TF_CONFIG"


def rows(dataset: object) -> list[list[int]]:
    return [batch.numpy().tolist() for batch in dataset]


def test_one_worker_has_all_rows():
    dataset = tf.data.Dataset.range(5).batch(2)
    expected = [[0, 1], [2, 3], [4]]
    assert rows(tfdistr.distribute(dataset)) == expected
    strategy = tfdistr.make_strategy()
    assert rows(tfdistr.distribute(dataset, strategy)) == expected
    with strategy.scope():
        assert rows(tfdistr.distribute(dataset)) == expected


def test_what_is_no_dataset_is_refused():
    with pytest.raises(ArgumentError) as caught:
        tfdistr.distribute([1, 2])
    assert caught.value.received == "a list of length 2"


def test_what_is_no_strategy_is_refused():
    with pytest.raises(ArgumentError) as caught:
        tfdistr.distribute(tf.data.Dataset.range(5).batch(2), "multi_worker_mirrored")
    assert caught.value.received == "a text ('multi_worker_mirrored')"


def test_without_the_strategy_nothing_is_shared_out_unnoticed(monkeypatch):
    as_worker(monkeypatch, 1)
    with pytest.raises(ArgumentError, match=r"distribute\(\) needs the strategy, or every") as caught:
        tfdistr.distribute(tf.data.Dataset.range(5).batch(2))
    assert caught.value.received == "no strategy, and 2 workers, from TF_CONFIG"
