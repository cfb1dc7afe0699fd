"""The searches of docs/tune.md that need packages of their own, run as a user runs them."""

import contextlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from doc_blocks import Block, blocks, difference, environment
from paths import ROOT

from tfdistr.utils.shared_names import SHARED, START, folder_of_start

BLOCKS = [block for block in blocks(ROOT / "docs" / "tune.md") if Path(__file__).name in block.detail]
SLOW = pytest.mark.slow(reason="starts Ray")


@pytest.fixture
def variables() -> Iterator[dict[str, str]]:
    """The environment variables of a search. What Ray leaves behind is removed.

    Ray kills the process of a trial that it stops, and with it what would remove the folder in /dev/shm.
    """
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder:  # short, for the paths of sockets
        yield {**os.environ, **environment(), "RAY_TMPDIR": folder}
    used = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            variables = process.joinpath("environ").read_bytes().split(b"\0")
            starts = (v.partition(b"=")[2].decode() for v in variables if v.startswith(f"{START}=".encode()))
            used |= set(map(folder_of_start, starts))
    for folder in set(SHARED.glob("tfdistr-*")) - used:
        with contextlib.suppress(OSError):  # it is not empty
            folder.rmdir()


@pytest.mark.timeout(280)
@pytest.mark.parametrize(
    "block", [pytest.param(b, marks=SLOW if "ray.init" in b.code else [], id=str(b)) for b in BLOCKS]
)
def test_it_prints_what_the_page_shows(
    with_pandas: None, variables: dict[str, str], block: Block, tmp_path: Path
) -> None:
    missing = {name for name in re.findall(r"^import (\w+)", block.code, re.MULTILINE) if not find_spec(name)}
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed here: make test-ray has it")
    script = tmp_path / "search.py"
    script.write_text(block.code)
    ended = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=variables,
        capture_output=True, text=True, timeout=250,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert block.output is not None
    assert difference(block.output, ended.stdout) is None, difference(block.output, ended.stdout)
