"""A server for PMI-1, the protocol with which processes become the ranks of one MPI job.

An MPICH process finds the other ranks through a manager, to which it has a connection (the environment
variable PMI_FD). It writes its addresses under keys, waits until all have done so, and reads those of the
others. Here the first worker is this manager. So no MPI launcher is needed, and a running process can become
a rank.

Source: "PMI version 1.1 message protocol" (MPICH, src/pmi/maint/pmi-1.1.txt), and Flux RFC 13.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

#: The largest number of keys of a rank: MPI needs no more.
_KEYS = 256
_LONGEST_KEY, _LONGEST_VALUE = 64, 2048
_MAPPING = "PMI_process_mapping"


class PmiError(ValueError):
    """A line that no MPI rank would send."""


class PmiServer:
    """The manager of the ranks of one MPI job. It knows nothing of connections.

    Args:
        name: The name of the job. Ranks make names of shared memory from it, so each start needs another.
        nodes: For each rank, the number of its node. The ranks of a node share memory.
    """

    def __init__(self, name: str, nodes: Sequence[int]) -> None:
        self._name, self._size = name, len(nodes)
        self._values = {_MAPPING: process_mapping(nodes)}
        self._keys = [0] * self._size
        self._waiting: set[int] = set()

    def answer(self, rank: int, line: str) -> dict[int, str]:
        """Return the lines to send after a line of a rank: for each rank that gets one, its line.

        Raises:
            PmiError: The line is not one of the protocol.
        """
        words = parse(line)
        command = words.pop("cmd", "")
        if command == "barrier_in":
            self._waiting.add(rank)
            if len(self._waiting) < self._size:
                return {}
            self._waiting.clear()
            return dict.fromkeys(range(self._size), "cmd=barrier_out")
        reply = getattr(self, f"_{command}", None) if command in _COMMANDS else None
        if reply is None:
            raise PmiError(f"the command {command!r}")
        return {rank: reply(rank, words)}

    def _init(self, rank: int, words: dict[str, str]) -> str:
        rc = 0 if words.get("pmi_version") == "1" else -1
        return f"cmd=response_to_init pmi_version=1 pmi_subversion=1 rc={rc}"

    def _get_maxes(self, rank: int, words: dict[str, str]) -> str:
        return f"cmd=maxes kvsname_max=256 keylen_max={_LONGEST_KEY} vallen_max={_LONGEST_VALUE}"

    def _get_appnum(self, rank: int, words: dict[str, str]) -> str:
        return "cmd=appnum appnum=0"

    def _get_universe_size(self, rank: int, words: dict[str, str]) -> str:
        return f"cmd=universe_size size={self._size}"

    def _get_my_kvsname(self, rank: int, words: dict[str, str]) -> str:
        return f"cmd=my_kvsname kvsname={self._name}"

    def _put(self, rank: int, words: dict[str, str]) -> str:
        key, value = words.get("key", ""), words.get("value", "")
        self._keys[rank] += 1
        if not 0 < len(key) <= _LONGEST_KEY or len(value) > _LONGEST_VALUE or self._keys[rank] > _KEYS:
            raise PmiError("a key that is too long, or too many of them")
        self._values[key] = value
        return "cmd=put_result rc=0 msg=success"

    def _get(self, rank: int, words: dict[str, str]) -> str:
        value = self._values.get(words.get("key", ""))
        if value is None:
            return "cmd=get_result rc=-1 msg=key_not_found value=unknown"
        return f"cmd=get_result rc=0 msg=success value={value}"

    def _finalize(self, rank: int, words: dict[str, str]) -> str:
        return "cmd=finalize_ack"


_COMMANDS = frozenset(
    ("init", "get_maxes", "get_appnum", "get_universe_size", "get_my_kvsname", "put", "get", "finalize")
)


def parse(line: str) -> dict[str, str]:
    """Return the words of a line by their names; the value of a line is its last word, and may have spaces.

    Raises:
        PmiError: It has no such form.
    """
    head, is_put, value = line.strip().partition(" value=")
    words = dict(word.split("=", 1) for word in head.split() if "=" in word)
    if "cmd" not in words:
        raise PmiError("no command")
    return {**words, "value": value} if is_put else words


def process_mapping(nodes: Sequence[int]) -> str:
    """Describe the ranks of each node: blocks of a node, the number of nodes, and of ranks on each."""
    blocks = "".join(f",({node},1,{len(list(ranks))})" for node, ranks in groupby(nodes))
    return f"(vector{blocks})"
