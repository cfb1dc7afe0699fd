import ctypes
import os

from tfdistr.r.session import reload_environ


def test_environ_follows_what_was_changed_outside_of_python(monkeypatch):
    monkeypatch.setenv("TFDISTR_TEST_CHANGED", "before")
    monkeypatch.setenv("TFDISTR_TEST_REMOVED", "before")
    monkeypatch.setenv("TFDISTR_TEST_KEPT", "kept")
    monkeypatch.delenv("TFDISTR_TEST_ADDED", raising=False)
    process = ctypes.CDLL(None)
    assert process.setenv(b"TFDISTR_TEST_CHANGED", b"after", 1) == 0
    assert process.setenv(b"TFDISTR_TEST_ADDED", "a = b, ü".encode(), 1) == 0
    assert process.unsetenv(b"TFDISTR_TEST_REMOVED") == 0
    assert os.environ["TFDISTR_TEST_CHANGED"] == "before"

    reload_environ()

    assert os.environ["TFDISTR_TEST_CHANGED"] == "after"
    assert os.environ["TFDISTR_TEST_ADDED"] == "a = b, ü"
    assert os.environ["TFDISTR_TEST_KEPT"] == "kept"
    assert "TFDISTR_TEST_REMOVED" not in os.environ
    del os.environ["TFDISTR_TEST_ADDED"]
