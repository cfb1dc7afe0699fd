"""A worker's view of the tasks of its cluster, and of the processes at their addresses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tfdistr.rendezvous.protocol import (
    Message,
    absence,
    greeting_of,
    look_up_host,
    printable,
    quoted,
    some_at_once,
    this_process,
)
from tfdistr.rendezvous.tf_config import split_address
from tfdistr.rendezvous.token import TOKEN, Proofs

_RETRY = 1.0
_SHOWN = 8  # missing tasks in a message


class Answer(NamedTuple):
    """The answer at an address: a waiting worker's greeting, or an error; neither from other programs."""

    greeting: Message | None = None
    error: OSError | None = None

    def is_of(self, task: str) -> bool:
        return self.greeting is not None and bool(self.greeting["task"] == task)


async def answer_at(address: str, timeout: float | None = None) -> Answer:
    """Ask what is at an address; ``timeout`` limits the lookup of the name as well."""
    try:
        async with asyncio.timeout(timeout):
            greeting, _, writer = await greeting_of(address)
    except OSError as error:
        return Answer(error=error)
    except ValueError:
        return Answer()
    writer.close()
    return Answer(greeting)


class Survey:
    """This worker among its peers, and what it finds out about them while it waits.

    Attributes:
        tasks: The address of each task, by its name. The leader comes first.
        hello: What this worker tells the leader, with the values that must be the same on all workers.
        unresolved: The tasks whose names do not resolve yet.
        refused: Whether a process at the address of the leader has another token.
    """

    def __init__(self, tasks: Mapping[str, str], own: str, fields: Mapping[str, str]) -> None:
        self.tasks, self.own, self.id = dict(tasks), own, this_process()
        self.leader = next(iter(self.tasks))
        self.leads = own == self.leader
        addresses = {f"address of {name}": address for name, address in tasks.items()}
        self.hello: Message = {"task": own, "id": self.id, "fields": {**addresses, **fields}}
        self.unresolved = set(self.tasks)
        self.refused = False

    def title(self, name: str) -> str:
        return f"{name} ({self.tasks.get(name, 'an unknown address')})"

    def without(self, names: Iterable[str]) -> dict[str, str]:
        return {name: address for name, address in self.tasks.items() if name not in names}

    async def resolve(self) -> None:
        """Look up the names of all tasks until each resolves."""

        async def look(name: str) -> None:
            host, port = split_address(self.tasks[name])
            while name in self.unresolved:
                try:
                    await look_up_host(host, port)
                    self.unresolved.discard(name)
                except OSError:
                    await asyncio.sleep(_RETRY)

        await asyncio.gather(*map(look, self.tasks))

    async def absent(self, names: Sequence[str]) -> list[str]:
        """Return the tasks among ``names`` that are not there, or do not join because of such a task."""

        async def is_there(name: str) -> bool:
            answer = await answer_at(self.tasks[name])
            # A task that has not registered with the leader may wait for other tasks than the leader.
            waits = answer.greeting["waits"] if answer.greeting and self.leads else ()
            return answer.is_of(name) and set(waits) <= {*self.unresolved, self.own}

        there = await some_at_once(is_there, names)
        return [name for name, is_there in zip(names, there, strict=True) if not is_there]

    async def reasons(self, missing: Sequence[str]) -> str:
        """Describe what is at the addresses of missing tasks."""
        shown = missing[:_SHOWN]
        reasons = await some_at_once(self._reason, shown)
        texts = [self.title(name) + why for name, why in zip(shown, reasons, strict=True)]
        more = len(missing) - len(shown)
        return "; ".join([*texts, *([f"and {more} more"] if more else [])])

    async def _reason(self, name: str) -> str:
        if name in self.unresolved:
            return ", whose name does not resolve"
        greeting, error = await answer_at(self.tasks.get(name, ""))
        if error is not None:
            return f", {absence(error)}"
        if greeting is None:
            return ", where something else answers (has the cluster started already?)"
        if bool(greeting.get("token")) != bool(Proofs()) or (self.refused and name == self.leader):
            return f", which has another {TOKEN} than this process, or none"
        if greeting["task"] != name:
            other, known = printable(greeting["task"]), greeting["task"] in self.tasks
            return f", where {other if known else f'a process that calls itself {quoted(other)}'} answers"
        waits = [other for other in greeting["waits"] if other != name and other in self.tasks]
        more = ["others"] if len(waits) > _SHOWN else []
        titles = [*map(self.title, waits[:_SHOWN]), *more]
        return f", which waits for {' and '.join(titles)}" if waits else ""
