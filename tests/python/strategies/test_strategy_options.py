"""The strategies of distributed_fit() as objects: their options, and what is said about other values."""

from collections.abc import Callable
from typing import Any

import pytest
from refusals import assert_says

import tfdistr
from tfdistr import model_parallel, multi_worker_mirrored, parameter_server
from tfdistr.clusters.local.local_cluster import describe_local_cluster
from tfdistr.errors import ArgumentError
from tfdistr.jobs.strategies import STRATEGIES, Strategy, as_strategy

PLACEMENT = {"dense": "worker 0"}
A_STRATEGY = "`strategy` must be the name of a strategy or a strategy object."
NEEDS_PLACEMENT = 'The strategy "model_parallel" needs `placement`:'


@pytest.mark.parametrize("name", sorted(STRATEGIES.keys() - {"model_parallel"}))
def test_a_name_is_the_strategy_without_options(name: str) -> None:
    made = getattr(tfdistr, name)()
    assert as_strategy(name) == made
    assert as_strategy(made) is made
    assert (made.options, made.timeouts(None), str(made)) == ({}, {}, f"{name}()")


def test_a_strategy_in_words() -> None:
    made = parameter_server(update="sync", replicas_to_aggregate=2.0, start_timeout=60)  # type: ignore[arg-type]
    assert str(made) == 'parameter_server(start_timeout=60.0, update="sync", replicas_to_aggregate=2)'
    assert made.options == {"update": "sync", "replicas_to_aggregate": 2}
    assert made.timeouts(None) == {"start_timeout": 60.0}
    assert multi_worker_mirrored(communication="ring").options == {}


@pytest.mark.parametrize(
    ("strategy", "received"),
    [
        (5, "a number (5)"),
        (None, "None"),
        (tfdistr.mirrored, "a function"),
        ({"name": "mirrored"}, "a dictionary of length 1"),
        (["mirrored"], "a list of length 1"),
    ],
)
def test_what_is_no_strategy(strategy: Any, received: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        tfdistr.distributed_fit(lambda: None, [[1.0]], [1.0], strategy=strategy)
    assert_says(caught.value, [A_STRATEGY, f"Received: {received}"])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: as_strategy("central"),
         ["`strategy` must be one of", "Received: 'central'"]),
        (lambda: as_strategy("model_parallel"), [NEEDS_PLACEMENT, "Received: None"]),
        (lambda: multi_worker_mirrored(communication="gloo"),
         ["`communication` must be one of 'auto',", "Received: 'gloo'"]),
        (lambda: multi_worker_mirrored(gradient_dtype="float16"),
         ["`gradient_dtype` must be one of 'float32',", "Received: 'float16'"]),
        (lambda: multi_worker_mirrored(start_timeout=0),
         ["`start_timeout` must be a number of", "Received: 0"]),
        (lambda: model_parallel(PLACEMENT, heartbeat_timeout=-1),
         ["`heartbeat_timeout` must be a number of", "Received: -1"]),
        (lambda: parameter_server(update="later"),
         ["`update` must be one of 'async', 'sync'.", "Received: 'later'"]),
        (lambda: parameter_server(update="sync", replicas_to_aggregate=0),
         ["`replicas_to_aggregate` must be a whole", "Received: 0"]),
        (lambda: parameter_server(replicas_to_aggregate=2),
         ["`replicas_to_aggregate` needs", "Received: update='async', replicas_to_aggregate=2"]),
    ],
)  # fmt: skip
def test_options_that_are_refused(make: Callable[[], object], said: list[str]) -> None:
    with pytest.raises(ArgumentError) as caught:
        make()
    assert_says(caught.value, said)


@pytest.mark.parametrize(
    ("strategy", "ps", "given"),
    [
        (multi_worker_mirrored(start_timeout=60), 0, "multi_worker_mirrored(start_timeout=60)"),
        (multi_worker_mirrored(heartbeat_timeout=5.5), 0, "multi_worker_mirrored(heartbeat_timeout=5.5)"),
        (parameter_server(start_timeout=60), 1, "parameter_server(start_timeout=60)"),
        (model_parallel(PLACEMENT, heartbeat_timeout=9), 0, "model_parallel(heartbeat_timeout=9)"),
    ],
)
def test_a_cluster_has_its_own_timeouts(strategy: Strategy, ps: int, given: str) -> None:
    cluster = describe_local_cluster(2, ps=ps)
    with pytest.raises(ArgumentError) as caught:
        tfdistr.distributed_fit(lambda: None, [[1.0]], [1.0], cluster=cluster, strategy=strategy)
    timeout = given.partition("(")[2].removesuffix(")")
    assert str(caught.value).splitlines() == [
        f"With `cluster`, `{timeout.partition('=')[0]}` is an argument of the cluster.",
        f"Received: strategy={given}, and a cluster",
        f"Fix: Pass cluster=local_cluster({timeout}), for example.",
    ]
