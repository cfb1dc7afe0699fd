"""The environment of the processes that tests start, and what these leave when they are killed."""

import contextlib
import faulthandler
import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "tools" / "lab"))
import leftovers

leftovers.own_everything()

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # So start shells what they run in the background, and all that this starts inherits it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests start many processes, which are to start and end fast. Keras imports pandas, matplotlib and IPython
# where they are installed; python -X importtime -c 'import keras' shows for how long. Few tests need one.
WITHOUT = str(Path(__file__).parent / "without")
STARTUP = str(Path(__file__).parent / "startup")
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [WITHOUT, STARTUP, os.environ.get("PYTHONPATH")]))
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the threads of NumPy spin before they sleep
os.environ["R_NSIZE"] = "4M"  # cells before the collector of R runs, which looks at all that is loaded


@contextlib.contextmanager
def _with_pandas() -> Iterator[None]:
    paths = os.environ["PYTHONPATH"].split(os.pathsep)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in paths if path != WITHOUT))
        yield


@pytest.fixture(scope="module")
def with_pandas() -> Iterator[None]:
    """The processes that a module starts have pandas, matplotlib and IPython."""
    with _with_pandas():
        yield


@pytest.fixture
def with_pandas_once() -> Iterator[None]:
    """The processes that a test starts have pandas, matplotlib and IPython."""
    with _with_pandas():
        yield


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """The tests of a file leave nothing on this machine but the fork servers of their session."""
    before = leftovers.Present()
    yield
    left = leftovers.left_since(before)
    assert not left, "These tests have left:\n" + "\n".join(left)


@pytest.fixture(scope="session", autouse=True)
def _what_a_killed_mpiexec_leaves() -> Iterator[None]:
    """MPICH's launcher describes the machine in a file whose folder is always /tmp."""

    def files() -> set[Path]:
        return set(Path("/tmp").glob("hydra_hwloc_xmlfile_*"))

    before = files()
    yield
    for file in files() - before:
        file.unlink(missing_ok=True)


def pytest_collection_finish() -> None:
    """The collector need not look at what all tests share again and again."""
    gc.freeze()


# --- What is not run, and where a test hung, is said: with tests side by side, pytest itself does not


_TERMINAL = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        config.stash[_TERMINAL] = os.dup(2)  # before each test's output is captured


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    if (terminal := item.config.stash.get(_TERMINAL, None)) is not None:
        # The timeout ends the process.
        faulthandler.dump_traceback_later(max(0.1, settings.timeout - 1), file=terminal)


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> None:
    if _TERMINAL in item.config.stash:
        faulthandler.cancel_dump_traceback_later()


_deselected: dict[str, int] = {}


def pytest_deselected(items: list[pytest.Item]) -> None:
    for item in items:
        for name in ("slow", "alone"):
            if item.get_closest_marker(name) and f"not {name}" in item.config.option.markexpr:
                _deselected[name] = _deselected.get(name, 0) + 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["deselected"] = _deselected


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    _deselected.update(getattr(node, "workeroutput", {}).get("deselected", {}))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for name, where in (("slow", "make test-all runs them"), ("alone", "they run when no other test does")):
        if _deselected.get(name):
            terminalreporter.write_line(f"Not run here: {_deselected[name]} tests marked {name}; {where}.")
