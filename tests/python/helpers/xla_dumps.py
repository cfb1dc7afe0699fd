"""What XLA has compiled: the files that it writes with XLA_FLAGS=--xla_dump_to=FOLDER."""

import re
from pathlib import Path


def operations(folder: Path) -> set[str]:
    """The TensorFlow operations in the groups that auto-clustering has given to XLA."""
    groups = folder.glob("*.cluster_*.before_optimizations.txt")
    return {name for group in groups for name in re.findall(r'op_type="(\w+)"', group.read_text())}
