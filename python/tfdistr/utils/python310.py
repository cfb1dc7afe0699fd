"""What Python 3.10 does not have, in the form that Python 3.11 has it."""

from __future__ import annotations

import sys

__all__ = ["SAFE_PATH", "add_note", "safe_path", "timeout", "tomllib"]

if sys.version_info >= (3, 11):
    from asyncio import timeout

    import tomllib

    #: Options by which Python does not look for modules in the folder of the program.
    SAFE_PATH = ("-P",)

    def safe_path() -> bool:
        """Return whether this process was started with ``SAFE_PATH``."""
        return sys.flags.safe_path

    def add_note(error: BaseException, note: str) -> None:
        """Add a text that Python shows below an error."""
        error.add_note(note)

else:
    import asyncio
    import contextlib
    from collections.abc import AsyncIterator

    import tomli as tomllib

    SAFE_PATH: tuple[str, ...] = ()

    def safe_path() -> bool:
        """Return False: the program itself has to remove its folder."""
        return False

    def add_note(error: BaseException, note: str) -> None:
        """Add a text to an error. Python 3.10 does not show it."""
        error.__notes__ = [*getattr(error, "__notes__", []), note]  # type: ignore[attr-defined]

    @contextlib.asynccontextmanager
    async def timeout(delay: float) -> AsyncIterator[None]:
        """Raise TimeoutError if the code of the context takes longer than ``delay`` seconds."""
        task = asyncio.current_task()
        assert task is not None
        expired = False

        def expire() -> None:
            nonlocal expired
            expired = True
            task.cancel()

        handle = asyncio.get_running_loop().call_later(delay, expire)
        try:
            yield
        except asyncio.CancelledError:
            if expired:
                raise TimeoutError from None
            raise
        finally:
            handle.cancel()
