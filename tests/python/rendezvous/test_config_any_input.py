"""TF_CONFIG: any input gives a valid config or a `ClusterConfigError`, and nothing else."""

import json
import re
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from slow import few_or_many

from tfdistr.errors import ClusterConfigError
from tfdistr.rendezvous import tf_config
from tfdistr.rendezvous.config import JOBS, ClusterConfig, Task, parse_tf_config
from tfdistr.rendezvous.tf_config import split_address
from tfdistr.schemas import load_schema

# The same examples on every run, and no files left behind.
thorough = settings(max_examples=few_or_many(100, 300), deadline=None, derandomize=True, database=None)

hosts = st.from_regex(r"[a-z][a-z0-9_-]{0,8}(\.[a-z]{1,3})?", fullmatch=True) | st.ip_addresses(v=6).map(
    lambda ip: f"[{ip}]"
)
ports = st.integers(1, 65535)
unique_addresses = st.lists(
    st.tuples(hosts, ports).map(lambda place: f"{place[0]}:{place[1]}"),
    min_size=1,
    max_size=6,
    unique_by=lambda address: tf_config.endpoint(address, "address"),
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([*JOBS, "cluster", "task", "a:1", "b:2", "[::1]:3", "::1:4"])
)
names = st.sampled_from([*JOBS, "cluster", "task", "type", "index"]) | st.text(max_size=4)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


@st.composite
def valid_configs(draw: st.DrawFn) -> ClusterConfig:
    addresses = draw(unique_addresses)
    chief = addresses[:1] if len(addresses) > 2 and draw(st.booleans()) else []
    ps = addresses[-1:] if chief and draw(st.booleans()) else []
    jobs = {"chief": chief, "worker": addresses[len(chief) : len(addresses) - len(ps)], "ps": ps}
    type = draw(st.sampled_from([job for job in jobs if jobs[job]]))
    index = draw(st.integers(0, len(jobs[type]) - 1))
    return ClusterConfig({job: tuple(members) for job, members in jobs.items()}, Task(type, index))


def read_or_refuse(config: Any) -> ClusterConfig | None:
    """Read it; anything but a valid config or a `ClusterConfigError` fails the test."""
    try:
        read = parse_tf_config(config)
    except ClusterConfigError as error:
        str(error).encode("utf-8")
        return None
    assert ClusterConfig.from_json(read.to_json()) == read
    return read


@thorough
@given(st.text() | values.map(json.dumps))
def test_any_text_is_read_or_refused(text: str) -> None:
    read_or_refuse(text)


@thorough
@given(st.dictionaries(names, values, max_size=4) | values | st.binary())
def test_any_object_is_read_or_refused(config: Any) -> None:
    read_or_refuse(config)


@thorough
@given(valid_configs(), st.data())
def test_a_damaged_config_is_read_or_refused(config: ClusterConfig, data: st.DataObject) -> None:
    document = config.to_dict()
    places: list[tuple[Any, Any]] = [(document, "cluster"), (document, "task")]
    places += [(document["task"], name) for name in ("type", "index")]
    places += [(document["cluster"], job) for job in document["cluster"]]
    places += [(members, 0) for members in document["cluster"].values()]
    container, key = data.draw(st.sampled_from(places))
    container[key] = data.draw(values)
    read_or_refuse(document)


@thorough
@given(valid_configs(), st.booleans(), st.booleans(), st.sampled_from([int, float, str]))
def test_every_spelling_of_a_config_is_the_same(
    config: ClusterConfig, unboxed: bool, boxed: bool, number: Callable[[int], Any]
) -> None:
    def one(value: Any) -> Any:
        return [value] if boxed else value

    cluster = {
        job: members[0] if unboxed and len(members) == 1 else [one(address) for address in members]
        for job, members in config.jobs.items()
    }
    task = {"type": one(config.task.type), "index": one(number(config.task.index))}
    assert read_or_refuse(json.dumps({"task": task, "cluster": cluster})) == config


@thorough
@given(
    st.text(max_size=12)
    | st.from_regex(r"\[?[0-9a-f.:]{0,12}\]?:[0-9]{0,6}\n?", fullmatch=True)
    | st.tuples(hosts, ports).map(lambda place: f"{place[0]}:{place[1]}")
)
def test_schema_and_code_agree_on_addresses(address: str) -> None:
    schema = load_schema("tf_config")
    matches = re.search(schema["$defs"]["address"]["pattern"], address) is not None
    refusal = ""
    try:
        host, port = split_address(address)
    except ClusterConfigError as error:
        refusal = error.message
    else:
        assert address == (f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    # The pattern leaves one thing to the code: whether the numbers of an IP address are right.
    assert matches == (not refusal) or (matches and "valid IP" in refusal)
