"""Small file systems, which a test can fill."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


class Disk:
    """A mounted file system.

    Args:
        path: Where it is mounted.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def mount(self, options: str) -> None:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.path)]
        if subprocess.run(command, capture_output=True).returncode:
            pytest.skip("no file system can be mounted here")

    def fill(self) -> None:
        fill(self.path)

    def free(self) -> None:
        (self.path / "filling").unlink()


def fill(folder: Path) -> None:
    """Leave no byte free on the disk of a folder."""
    with open(folder / "filling", "ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 12))


@contextlib.contextmanager
def small_disk_at(path: Path, size: str) -> Iterator[Disk]:
    """A file system of a size such as "1m" in the context."""
    path.mkdir()
    disk = Disk(path)
    disk.mount(f"size={size},mode=700")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)  # a test that fails may hold files
        os.rmdir(path)
