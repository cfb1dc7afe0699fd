"""Jobs that take a run in a store over while others still write: every order of their operations.

The jobs are the code of tfdistr, with a store that answers from a list. Where the list ends, the job is
paused. So a job is a function of its answers, and all orders can be tried: from each state, each job makes
its next operation. States with the same objects and the same answers are the same state. A job that makes no
further operation has crashed, or is paused for ever, so crashes are among the states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from tfdistr.checkpoint import generations
from tfdistr.checkpoint.folder import DESCRIPTION, Checkpoint, CheckpointFolder, Position
from tfdistr.checkpoint.generations import Claim
from tfdistr.checkpoint.stored_checkpoints import StoredCheckpoints
from tfdistr.checkpoint.stored_documents import StoredDocuments
from tfdistr.errors import CheckpointError

#: The objects of a store: names and contents.
Objects = tuple[tuple[str, bytes], ...]


class Paused(BaseException):
    """The next operation of a job."""

    def __init__(self, *operation: Any) -> None:
        self.operation = operation


class Scripted:
    """A store whose every operation is handed on."""

    url = "memory://scripted"

    def __init__(self, ask: Callable[..., Any]) -> None:
        self._ask = ask

    def names(self, folder: str = "") -> list[str]:
        return list(self._ask("names", folder))

    def read(self, name: str) -> bytes | None:
        return self._ask("read", name)

    def write(self, name: str, content: bytes) -> None:
        self._ask("write", name, content)

    def upload(self, name: str, file: Path) -> None:
        self._ask("write", name, file.read_bytes())

    def download(self, name: str, file: Path) -> bool:
        content = self._ask("read", name)
        file.unlink(missing_ok=True)
        if content is not None:
            file.write_bytes(content)
        return content is not None

    def remove(self, name: str) -> None:
        self._ask("remove", name)


def answered(objects: Objects, operation: str, name: str, content: bytes = b"") -> tuple[Objects, Any]:
    """The objects after an operation, and its answer."""
    there = dict(objects)
    if operation == "names":
        return objects, tuple(other for other in there if other.startswith(name))
    if operation == "read":
        return objects, there.get(name)
    if operation == "write":
        there[name] = content
    else:
        there.pop(name, None)
    return tuple(sorted(there.items())), None


class Saved(NamedTuple):
    """A checkpoint of a job.

    Attributes:
        run: The id of its run: the job that began it.
    """

    job: str
    epoch: int
    run: str


def writes(
    job: str, store: Any, folder: Path, saves: int, file_of: Callable[[Saved], Path] | None = None
) -> Iterator[Saved]:
    """Take a run over, and write checkpoints, as a job does.

    Args:
        job: A name of one letter.
        store: The store.
        folder: A folder of its machine.
        saves: Number of checkpoints.
        file_of: Gives the file of a checkpoint, if it is not made here.

    Yields:
        The checkpoint that is written next.

    Raises:
        CheckpointError: Another job has taken it over.
    """
    claim = Claim(store)
    stored, documents = StoredCheckpoints(store, claim), StoredDocuments(store, claim)
    described = folder / DESCRIPTION
    if documents.fetch(folder):
        run = described.read_text()
        found = stored.fetch(CheckpointFolder(folder, run))
    else:
        run, found = job, None
        folder.mkdir(exist_ok=True)
        described.write_text(run)
    claim.make()
    documents.upload(folder, DESCRIPTION)
    epoch = found.epoch if found else 0
    for _ in range(saves):
        epoch += 1
        yield Saved(job, epoch, run)
        position = Position(epoch, 0)
        stored.save(position, (file_of or made_in(folder))(Saved(job, epoch, run)))
        stored.prune(position)


def made_in(folder: Path) -> Callable[[Saved], Path]:
    def make(saved: Saved) -> Path:
        local, arrays = CheckpointFolder(folder, saved.run), {"a": np.full(10, saved.epoch, "float32")}
        notes = {"workers": 1, "by": saved.job}
        return local.save(Checkpoint(saved.run, Position(saved.epoch, 0), saved.epoch, notes, arrays))

    return make


def found_in(store: Any, folder: Path) -> Saved | None:
    """The checkpoint from which a job would continue now."""
    claim = Claim(store)
    folder.mkdir(exist_ok=True)
    for file in folder.glob("*"):
        file.unlink()
    if not StoredDocuments(store, claim).fetch(folder):
        return None
    local = CheckpointFolder(folder, (folder / DESCRIPTION).read_text())
    StoredCheckpoints(store, claim).fetch(local)
    newest = local.newest()
    return newest and Saved(newest.notes["by"], newest.position.epoch, newest.job)


class Past:
    """The answers that a job has had, and what it does next.

    Attributes:
        operation: Its next operation; None if it has ended.
        generation: The folder of its claim, once it has made it.
        writing: The checkpoint that it writes.
        saved: Its newest complete checkpoint.
        refused: Whether it has ended as another job has taken the run over.
    """

    def __init__(self, jobs: Jobs, letter: str, before: Past | None = None, answer: Any = None) -> None:
        self._jobs, self._letter = jobs, letter
        self._answers: tuple[Any, ...] = (*before._answers, answer) if before else ()
        self.saved = before.saved if before else None
        self.generation = before.generation if before else ""
        if before and before.operation and before.operation[0] == "write":
            folder, _, name = before.operation[1].rpartition("/")
            if name == "writer":
                self.generation = folder
            if name.endswith(".mark"):
                self.saved = before.writing
        self._following: dict[Any, Past] = {}
        self.operation: tuple[Any, ...] | None = None
        self.writing: Saved | None = None
        self.refused = False
        left = iter(self._answers)

        def ask(*operation: Any) -> Any:
            for answer in left:
                return answer
            raise Paused(*operation)

        try:
            for self.writing in jobs.program(letter, Scripted(ask)):
                pass
        except Paused as paused:
            self.operation = paused.operation
        except CheckpointError:
            self.refused = True

    def then(self, answer: Any) -> Past:
        """The past with one more answer."""
        if answer not in self._following:
            self._following[answer] = Past(self._jobs, self._letter, self, answer)
        return self._following[answer]


#: The objects, and the past of each job.
State = tuple[Objects, tuple[Past, ...]]


class Jobs:
    """Jobs that write to one run, and all states to which they can bring it.

    Args:
        folder: A folder of this machine.
        saves: How many checkpoints each job writes, by its letter; the letter makes its id.
    """

    def __init__(self, folder: Path, saves: Mapping[str, int], patch: pytest.MonkeyPatch) -> None:
        self.letters = tuple(saves)
        self._saves, self._folder, self._patch = saves, folder, patch
        self._files: dict[Saved, Path] = {}
        self._found: dict[Objects, Saved | None] = {}
        self._interned: dict[Objects, Objects] = {}
        self.begin: State = ((), tuple(Past(self, letter) for letter in saves))

    def program(self, letter: str, store: Any) -> Iterator[Saved]:
        """The job with this letter."""
        self._patch.setattr(generations.uuid, "uuid4", lambda: type("Id", (), {"hex": letter * 32}))
        return writes(letter, store, self._folder / "machine", self._saves[letter], self._file_of)

    def _file_of(self, saved: Saved) -> Path:
        if saved not in self._files:
            self._files[saved] = made_in(self._folder / "".join(map(str, saved)))(saved)
        return self._files[saved]

    def after(self, state: State, index: int) -> State | None:
        """The state after the next operation of a job; None if it has ended."""
        objects, pasts = state
        past = pasts[index]
        if past.operation is None:
            return None
        objects, answer = answered(objects, *past.operation)
        objects = self._interned.setdefault(objects, objects)
        return objects, (*pasts[:index], past.then(answer), *pasts[index + 1 :])

    def until(self, state: State, letter: str, reached: Callable[[Past], bool]) -> State:
        """The state when a job alone has come to a step."""
        index = self.letters.index(letter)
        while not reached(state[1][index]):
            following = self.after(state, index)
            assert following is not None
            state = following
        return state

    def found(self, objects: Objects) -> Saved | None:
        """The checkpoint from which a job would continue."""
        if objects not in self._found:
            store = Scripted(lambda *operation: answered(objects, *operation)[1])
            self._found[objects] = found_in(store, self._folder / "reader")
        return self._found[objects]

    def following(self, state: State, crashed: str = "") -> list[State]:
        """The states after the next operation of each job, but of one that has crashed."""
        indices = [index for index, letter in enumerate(self.letters) if letter != crashed]
        return [after for index in indices if (after := self.after(state, index))]


def key(state: State) -> tuple[int, ...]:
    """What tells states apart; their parts are there once each."""
    return id(state[0]), *map(id, state[1])


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Jobs]:
    return lambda **saves: Jobs(tmp_path, saves, monkeypatch)


class Search:
    """All orders in which jobs can make their operations, and those in which a reader is misled.

    Args:
        jobs: The jobs.
        expected: The checkpoint that a reader must take in a state.
        crashed: A job that makes no further operation.
    """

    def __init__(self, jobs: Jobs, expected: Callable[[State], Saved | None], crashed: str = "") -> None:
        self._jobs, self._expected, self._crashed = jobs, expected, crashed
        self._numbers: dict[tuple[int, ...], tuple[int, int]] = {}

    def __call__(self, state: State) -> tuple[int, int]:
        """The number of orders that can follow a state, and in how many of them something is lost."""
        left, begin = [state], state
        while left:
            state = left[-1]
            following = self._jobs.following(state, self._crashed)
            unknown = [after for after in following if key(after) not in self._numbers]
            if unknown:
                left += unknown
                continue
            left.pop()
            good = self._jobs.found(state[0]) == self._expected(state)
            ways = [self._numbers[key(after)] for after in following] or [(1, 1)]
            self._numbers[key(state)] = sum(way[0] for way in ways), good * sum(way[1] for way in ways)
        orders, good = self._numbers[key(begin)]
        return orders, orders - good


def of_the_last(state: State) -> Saved | None:
    """The newest checkpoint of the last job that has one."""
    return next((past.saved for past in reversed(state[1]) if past.saved), None)


def of_the_highest(state: State) -> Saved | None:
    """The newest checkpoint of the highest generation that has one."""
    assert not all(past.refused for past in state[1][-2:])
    return max(((past.generation, past.saved) for past in state[1] if past.saved), default=("", None))[1]


@pytest.mark.slow(reason="tries each point of a long list")
@pytest.mark.parametrize("first", ["a", "b"])
def test_a_paused_job_loses_nothing_of_the_one_that_took_the_run_over(jobs, first):
    """The first job has two checkpoints when the second one takes over. It may have the higher id."""
    both = jobs(**{first: 3, "a" if first == "b" else "b": 2})
    begin = both.until(both.begin, first, lambda past: past.writing == Saved(first, 3, first))
    orders, lost = Search(both, of_the_last)(begin)
    assert lost == 0
    assert orders > 1_000_000


def test_of_two_jobs_that_begin_at_once_one_wins(jobs):
    """Another job has left two checkpoints. Jobs that find the same generations differ by their ids."""
    three = jobs(c=2, a=1, b=1)
    begin = three.until(three.begin, "c", lambda past: past.operation is None)
    orders, lost = Search(three, of_the_highest)(begin)
    assert lost == 0
    assert orders > 100_000


@pytest.mark.slow(reason="tries each point of a long list")
def test_of_two_jobs_that_begin_a_run_at_once_one_wins(jobs):
    """Each makes an id for the run. A reader has the id and the checkpoints of one of them."""
    orders, lost = Search(two := jobs(a=2, b=2), of_the_highest)(two.begin)
    assert lost == 0
    assert orders > 100_000


@pytest.mark.slow(reason="tries each point of a long list")
def test_a_job_that_crashes_as_it_takes_over_loses_nothing_of_the_two_others(jobs):
    """The first job is paused at any operation, the second one crashes at any, a third one follows."""
    three, total = jobs(a=3, b=2, c=1), 0
    search = Search(three, of_the_last, crashed="b")
    paused: State | None
    paused = three.until(three.begin, "a", lambda past: past.writing == Saved("a", 3, "a"))
    while paused:
        crashed: State | None = paused
        while crashed:
            orders, lost = search(crashed)
            assert lost == 0
            total += orders
            crashed = three.after(crashed, 1)
        paused = three.after(paused, 0)
    assert total > 500_000
