"""Objects in stores: the same through each protocol, and what is said of a store that cannot be used."""

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import stores

from tfdistr.checkpoint.object_store import Store, StoreError, is_url
from tfdistr.errors import ArgumentError

LARGE = b"0123456789abcdef" * 400_000  # gcsfs sends what is above 5 MB in parts


@pytest.fixture(params=["s3", "gs", "memory", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a run that is not there yet, by each protocol."""
    kinds = {"s3": stores.s3_server, "gs": stores.google_server, "memory": stores.memory}
    with kinds.get(request.param, contextlib.nullcontext)():
        yield f"file://{tmp_path}/run" if request.param == "file" else f"{request.param}://bucket/run"


def test_objects_come_back(url, tmp_path):
    store, file, back = Store(url), tmp_path / "file", tmp_path / "back"
    file.write_bytes(LARGE)
    assert store.names() == []
    store.write("note", b"old")
    store.write("note", b"new")
    store.upload("folder/large", file)
    assert Store(f"{url}/").names() == ["folder/large", "note"]
    assert store.names("folder/") == ["folder/large"]
    assert store.names("other/") == []
    assert store.read("note") == b"new"
    assert store.download("folder/large", back)
    assert back.read_bytes() == LARGE
    for name in ("note", "note"):  # the second time it is not there
        store.remove(name)
    assert store.read("note") is None
    assert not store.download("note", back)
    assert not back.exists()
    assert store.names() == ["folder/large"]


def test_a_run_beside_it_is_another_run(url):
    Store(f"{url}-2").write("note", b"")
    assert Store(url).names() == []


def test_what_is_a_url():
    for url in ("s3://bucket/run", "gs://b", "memory://run", "file:///tmp/run"):
        assert is_url(url)
    for folder in (None, "run", "/tmp/run", "C:/run", "a:b", "//run", Path("s3/run")):
        assert not is_url(folder)


def said(caught: pytest.ExceptionInfo[ArgumentError]) -> list[str]:
    return str(caught.value).splitlines()


def test_a_path_of_a_url_is_refused():
    with pytest.raises(ArgumentError) as caught:
        is_url(Path("s3://bucket/run"))
    assert caught.value.received == repr(Path("s3://bucket/run"))


@pytest.mark.parametrize(
    ("url", "rule", "received"),
    [
        ("s4://bucket/run", "`run_dir` must be a folder, or a URL", "'s4://bucket/run'"),
        ("s3://", "A URL as `run_dir` must name a bucket.", "'s3://'"),
        ("s3://me:secret@bucket/run", "A URL as `run_dir` must have no", "a URL of bucket with a password"),
    ],
    ids=["protocol", "bucket", "password"],
)
def test_urls_that_are_refused(url, rule, received):
    with pytest.raises(ArgumentError, match=rule) as caught:
        Store(url)
    assert caught.value.received == received


@pytest.mark.parametrize(
    ("url", "module", "expected"),
    [
        ("s3://bucket/run", "s3fs", [
            "`run_dir` with s3:// needs the package s3fs.", "Received: no s3fs",
            "Fix: pip install 'tfdistr[s3]'"]),
        ("gs://bucket/run", "gcsfs", [
            "`run_dir` with gs:// needs the package gcsfs.", "Received: no gcsfs",
            "Fix: pip install 'tfdistr[gcs]'"]),
        ("sftp://host/run", "paramiko", [
            "`run_dir` with sftp:// needs the package that fsspec has for it.",
            'Received: SFTPFileSystem requires "paramiko" to be installed',
            "Fix: Install that package for this process."]),
    ],
    ids=["s3", "gs", "other"],
)  # fmt: skip
def test_the_package_of_a_protocol_is_not_there(monkeypatch, url, module, expected):
    protocol = url.partition(":")[0]
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "fsspec.implementations.sftp", raising=False)
    known = importlib.import_module("fsspec.registry")._registry
    monkeypatch.delitem(known, protocol, raising=False)  # it would have the class
    with pytest.raises(ArgumentError) as caught:
        Store(url)
    assert said(caught) == expected


def test_what_a_store_says_is_the_reason(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"content")
    with stores.s3_server() as server:
        elsewhere, store = Store("s3://no-such-bucket/run"), Store("s3://bucket/run")
        assert elsewhere.names() == []  # S3 answers so where a bucket may be made
        for write in (lambda: elsewhere.write("note", b""), lambda: elsewhere.upload("note", file)):
            assert refusal(write) == "FileNotFoundError: The specified bucket does not exist"
        asks = (store.names, lambda: store.write("note", b""), lambda: store.upload("note", file))
        server.answer = lambda method, path: "deny"
        assert [refusal(ask) for ask in asks] == ["PermissionError: Access Denied"] * 3
        server.answer = lambda method, path: "fail"
        assert [refusal(ask) for ask in asks] == ["OSError: [Errno 121] We have a problem"] * 3
        server.stop()
        reached = f'"http://127.0.0.1:{server.port}/bucket/run/note"'
        assert refusal(lambda: store.upload("note", file)) == (
            f"EndpointConnectionError: Could not connect to the endpoint URL: {reached}"
        )
        server.start()
        server.answer = lambda method, path: "serve"
        store.upload("note", file)
        assert store.read("note") == b"content"


def refusal(ask: Callable[[], object]) -> str:
    with pytest.raises(StoreError) as caught:
        ask()
    return str(caught.value)


def test_a_store_of_files_is_for_this_user_alone(tmp_path):
    store = Store(f"file://{tmp_path}/runs/first")
    (tmp_path / "given").write_bytes(b"weights")
    (tmp_path / "given").chmod(0o644)
    store.write("note", b"text")
    store.upload("checkpoints/1", tmp_path / "given")
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "runs").rglob("*")}
    assert modes == {"first": 0o700, "note": 0o600, "checkpoints": 0o700, "1": 0o600}
