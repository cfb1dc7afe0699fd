"""Ctrl-C in each phase of a job ends the call with the interrupt of its language, and leaves nothing."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import leftovers
import pytest
from slow import mostly_slow

PROGRAMS = Path(__file__).parent / "programs"
TO_REACH = 120.0  # seconds
TO_END = 40.0  # seconds of a busy machine; without other work it takes two, and the import of TensorFlow five

pytestmark = pytest.mark.timeout(300)

EVERYWHERE = ["data", "first step", "epoch", "callback", "validation", "checkpoint", "evaluate", "predict"]
ON_WORKERS = ["cold start", "meeting", "warm start", "result", "compare", "session"]
QUICK = {("python", "workers", "epoch"), ("r", "here", "callback")}


class Session:
    """A session of a language, which makes one call after the other."""

    def __init__(self, language: str, folder: Path) -> None:
        self.folder = folder
        program = [sys.executable] if language == "python" else ["Rscript", "--no-init-file"]
        suffix = ".py" if language == "python" else ".R"
        paths = [str(PROGRAMS), *filter(None, [os.environ.get("PYTHONPATH")])]
        own = {"PHASE_FOLDER": str(folder), "PYTHONPATH": os.pathsep.join(paths)}
        environment = {**os.environ, **own}
        self._output = open(folder / "output", "w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [*program, str(PROGRAMS / f"interrupted{suffix}")],
            stdin=subprocess.PIPE, stdout=self._output, stderr=self._output, text=True, env=environment,
            start_new_session=True,
        )  # fmt: skip
        self._said = self._asked = 0

    def ask(self, phase: str, *, here: bool) -> Path:
        """Have it begin a call, and wait until the call is in its phase; return the folder of the run."""
        while self._said < 2 * self._asked:  # a test has failed
            self.says(TO_REACH)
        self._asked += 1
        for name in ("begun", "reached"):
            self.folder.joinpath(name).unlink(missing_ok=True)
        run_dir = self.folder / "run"
        shutil.rmtree(run_dir, ignore_errors=True)
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"phase": phase, "here": here, "run_dir": str(run_dir)}) + "\n")
        self.process.stdin.flush()
        reached = {
            "cold start": lambda: run_dir.joinpath("logs", "worker-0.log").exists(),
            "warm start": lambda: run_dir.joinpath("logs", "worker-0.log").exists(),
            "meeting": lambda: "started" in events(run_dir),
            "checkpoint": lambda: list(run_dir.glob("checkpoints/*.checkpoint")),
        }.get(phase, self.folder.joinpath("reached").exists)
        self.wait(reached, TO_REACH, f"the phase {phase!r}")
        return run_dir

    def interrupt(self) -> str:
        """Interrupt it as Ctrl-C does; return what came of the call."""
        os.kill(int(self.folder.joinpath("pid").read_text()), signal.SIGINT)
        return self.says(TO_END)

    def says(self, seconds: float) -> str:
        """The next line that it says."""
        self.wait(lambda: len(self._lines()) > self._said, seconds, "an answer")
        self._said += 1
        return self._lines()[self._said - 1]

    def _lines(self) -> list[str]:
        lines = self.folder.joinpath("output").read_text(errors="replace").splitlines()
        return [line.removeprefix("SESSION: ") for line in lines if line.startswith("SESSION: ")]

    def wait(self, condition: Callable[[], object], seconds: float, what: str) -> None:
        until = time.monotonic() + seconds
        while not condition():
            output = self.folder.joinpath("output").read_text(errors="replace")[-3000:]
            assert self.process.poll() is None, f"the session has ended:\n{output}"
            assert time.monotonic() < until, f"waited {seconds:g} s for {what}:\n{output}"
            time.sleep(0.02)

    def end(self) -> int:
        """End it as a session ends, and return its status."""
        assert self.process.stdin
        self.process.stdin.close()
        try:
            return self.process.wait(60)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            self._output.close()


def events(run_dir: Path) -> str:
    return "".join(path.read_text() for path in run_dir.glob("workers/*/events.jsonl"))


def processes_of(run_dir: Path) -> dict[int, str]:
    """The workers of a run, and what helps them: their commands, by process id."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            texts = [(process / name).read_bytes() for name in ("environ", "cmdline")]
            if any(os.fsencode(run_dir) in text for text in texts):
                found[int(process.name)] = texts[1].replace(bytes(1), b" ").decode()
    return found


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, str], Session]]:
    """The session of a language and a place; another one if it has ended."""
    started: dict[tuple[str, str], Session] = {}

    def session(language: str, place: str) -> Session:
        known = started.get((language, place))
        if known is None or known.process.poll() is not None:
            known = Session(language, tmp_path_factory.mktemp(f"{language}-{place}"))
            started[language, place] = known
        return known

    yield session
    ended = {names: session.end() for names, session in started.items()}
    assert set(ended.values()) <= {0}, ended


def cases() -> list[tuple[str, str, str]]:
    """Each phase in each place, and in both languages: in one of them here, in the other on workers."""
    made = []
    for language, here in (("python", EVERYWHERE[::2]), ("r", EVERYWHERE[1::2])):
        made += [(language, "here", phase) for phase in here]
        made += [(language, "workers", phase) for phase in ON_WORKERS]
        made += [
            (language, "workers", phase) for phase in EVERYWHERE
            if phase not in here or (language, "workers", phase) in QUICK
        ]  # fmt: skip
    return made


# Slow: each phase runs a job and the job after it, in two sessions.
@pytest.mark.parametrize(("language", "place", "phase"), mostly_slow(cases(), quick=QUICK))
def test_ctrl_c(sessions: Callable[[str, str], Session], language: str, place: str, phase: str) -> None:
    session = sessions(language, place)
    run_dir = session.ask(phase, here=place == "here")
    assert session.interrupt() == "interrupt KeyboardInterrupt"
    assert not processes_of(run_dir)
    assert not list(leftovers.listening(session.process.pid))
    assert not [*run_dir.glob("tmp"), *run_dir.glob("workers/*/tmp")]
    assert session.says(TO_REACH) == "next 2"


@pytest.mark.parametrize("language", ["python", "r"])
def test_no_interrupt_is_lost_that_comes_while_interrupts_are_held_back(language):
    program = PROGRAMS / "many_interrupts.py"
    command = [sys.executable, str(program)]
    if language == "r":
        command = ["Rscript", "--no-init-file", "-e", f"reticulate::py_run_file({json.dumps(str(program))})"]
    env = {**os.environ, "RETICULATE_PYTHON": sys.executable}
    ran = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=120, start_new_session=True
    )
    assert (ran.returncode, ran.stdout) == (0, "MISSED: 0\n"), ran.stdout + ran.stderr
