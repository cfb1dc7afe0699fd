"""The parts of the proof: what each shows, how it is run, what it printed, and the note about it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "proof"
NETWORKS = "seed wide resnet transformer lstm tabular mlp"

#: What each part shows, and its command. DATA_DIR has MNIST as TensorFlow Datasets prepares it.
PARTS = {
    "equality": ("Workers train as one", "make equality"),
    "faults": ("Reactions of workers to a failure", "make faults"),
    "replays": ("Planted faults, and what replays find", "make planted"),
    "soak": ("Jobs of all kinds, each with a random fault", "make soak MINUTES=60"),
    "speed": ("Examples per second, beside Keras, PyTorch and JAX", f"make bench T='{NETWORKS}' ROUNDS=2"),
    "ps": ("Parameter servers, beside TensorFlow 1's loop", "make bench T=ps ROUNDS=5"),
    "bfloat16": ("Gradients in 16 bits", 'DATA_DIR="$DATA_DIR" make bench T=bfloat16 ROUNDS=3'),
    "virtual": ("Virtual workers", "make bench T=virtual ROUNDS=2"),
    "generators": ("Generators", "make bench T=generators ROUNDS=5"),
    "scaling": ("Bytes of a step on more workers", "make bench T=scaling ROUNDS=1"),
    "clusters": ("MPI beside the ring between two hosts", "make bench T=clusters ROUNDS=3"),
    "data": ("Files", "make bench T=data ROUNDS=1"),
    "checkpoint": ("Cost of a checkpoint", "make bench T=checkpoint ROUNDS=1"),
    "start": ("From the call to the first step", "make bench T=start ROUNDS=5"),
    "cores": ("Workers against one process with all cores", "make bench T=cores ROUNDS=3"),
    "memory": ("Memory over 10,000 steps", "make bench T=memory ROUNDS=1"),
    "languages": ("R beside Python", "make bench T=languages ROUNDS=5"),
    "gpu": ("NVIDIA GPUs", "$PYTHON benchmarks/gpu.py --json docs/proof/gpu.json"),
}


@dataclass(frozen=True)
class Record:
    """What a part printed.

    Attributes:
        name: The name of the part.
        command: The command.
        made: The date, the commit and the seconds, as far as they are known.
        machine: The processor, the memory and the versions.
        printed: All that the command printed on its standard output.
    """

    name: str
    command: str
    made: str
    machine: str
    printed: str

    @property
    def file(self) -> Path:
        return FOLDER / f"{self.name}.txt"

    @property
    def paragraphs(self) -> list[str]:
        """What was printed, divided at its empty lines."""
        return re.split(r"\n(?:[ \t]*\n)+", self.printed.strip("\n"))

    @property
    def note(self) -> str:
        """What readers need to know about it, from NAME.md; "" without one."""
        note = self.file.with_suffix(".md")
        return note.read_text().strip() if note.exists() else ""

    def write(self) -> None:
        FOLDER.mkdir(exist_ok=True)
        head = f"$ {self.command}\n{self.made}\n{self.machine}\n"
        self.file.write_text(f"{head}\n{self.printed.rstrip()}\n")


def read(name: str) -> Record:
    """The record of a part.

    Raises:
        FileNotFoundError: There is none.
    """
    head, printed = (FOLDER / f"{name}.txt").read_text().split("\n\n", 1)
    command, made, machine = head.split("\n")
    return Record(name, command.removeprefix("$ "), made, machine, printed)


def recorded() -> list[Record]:
    """The records that are there, in the order of the parts."""
    return [read(name) for name in PARTS if (FOLDER / f"{name}.txt").exists()]
