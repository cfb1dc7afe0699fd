"""Stores on this machine: servers of the protocols of S3 and of Google, in threads of this process."""

import contextlib
import logging
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

_DENIED = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
_BUSY = b"<Error><Code>InternalError</Code><Message>We have a problem.</Message></Error>"


class S3Server:
    """A server of the protocol of S3, with the bucket "bucket".

    Args:
        listen: The address at which it listens.
        name: The name or address by which clients find it.

    Attributes:
        port: The TCP port.
        delay: Seconds that each request to write waits.
        answer: Says what comes of a request, by its method and path: "serve", "deny", "fail", or "cut" (the
            connection ends in the middle of what is sent).
        written: The paths of all objects that were written.
    """

    def __init__(self, listen: str = "127.0.0.1", name: str = "127.0.0.1") -> None:
        moto = pytest.importorskip("moto.server", reason="no server of S3 to test with: moto")
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._app = moto.DomainDispatcherApplication(moto.create_backend_app)
        self._handler = moto.MotoRequestHandler
        self.port = 0
        self._listen, self._name = listen, name
        self.delay = 0.0
        self.answer: Callable[[str, str], str] = lambda method, path: "serve"
        self.written: list[str] = []
        self.start()
        self._ask("POST", "/moto-api/reset")
        self._ask("PUT", "/bucket")
        self.written.clear()

    def start(self) -> None:
        """Serve, at the port that it had if it was stopped."""
        from werkzeug.serving import make_server

        self._server = make_server(
            self._listen, self.port, self._serve, threaded=True, request_handler=self._handler
        )
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Be gone: connections are refused."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which clients find the server, and do not try again and again."""
        return {
            "AWS_ENDPOINT_URL": f"http://{self._name}:{self.port}", "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "not-to-be-seen", "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_MAX_ATTEMPTS": "1", "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        }  # fmt: skip

    def _ask(self, method: str, path: str) -> None:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method)
        with urllib.request.urlopen(request, timeout=30):
            pass

    def _serve(self, environ: dict[str, Any], start_response: Any) -> Any:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if method == "PUT":
            time.sleep(self.delay)
        what = self.answer(method, path)
        if what != "serve":
            size = int(environ.get("CONTENT_LENGTH") or 0)
            environ["wsgi.input"].read(size // 2 if what == "cut" else size)
            if what == "cut":
                environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            status, body = ("403 Forbidden", _DENIED) if what == "deny" else ("500 Error", _BUSY)
            start_response(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
            return [] if method == "HEAD" else [body]
        if method == "PUT":
            self.written.append(path)
        return self._app(environ, start_response)


@contextlib.contextmanager
def s3_server(listen: str = "127.0.0.1", name: str = "127.0.0.1") -> Iterator[S3Server]:
    """A server of S3, which this process and those that it starts find."""
    server = S3Server(listen, name)
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in server.environment.items():
                patch.setenv(name, value)
            yield server
    finally:
        server.stop()


@contextlib.contextmanager
def google_server() -> Iterator[None]:
    """A server of Google's protocol with the bucket "bucket", which this process finds."""
    from fsspec.config import conf

    kind = pytest.importorskip("gcp_storage_emulator.server", reason="no server of gs:// to test with")
    logging.getLogger("gcp_storage_emulator").setLevel(logging.ERROR)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    server = kind.create_server("127.0.0.1", port, in_memory=True, default_bucket="bucket")
    server.start()
    try:
        with pytest.MonkeyPatch.context() as patch:
            # gcsfs reads both when it is imported; only Google's own servers have the second.
            patch.setenv("STORAGE_EMULATOR_HOST", address)
            patch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
            patch.setitem(conf, "gs", {"endpoint_url": address, "token": "anon"})
            yield
    finally:
        server.stop()


@contextlib.contextmanager
def memory() -> Iterator[None]:
    """An empty store of the protocol memory://."""
    from fsspec.implementations.memory import MemoryFileSystem

    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]
    yield
    MemoryFileSystem.store.clear()
