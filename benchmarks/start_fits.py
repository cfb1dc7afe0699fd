"""Runs of the seed network, one after another, as the JSON file says that is given; see start.py."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import networks

import tfdistr

EXAMPLES = 2_560

if __name__ == "__main__":
    x, y = (part[:EXAMPLES] for part in networks.data("seed"))

    def fit(folder: str, workers: int, communication: str, warm: bool) -> None:
        """One run."""
        Path(folder, "called").write_text(str(time.time()))
        tfdistr.distributed_fit(
            lambda: networks.model("seed"), x, y, cluster=tfdistr.local_cluster(workers, warm=warm),
            strategy=tfdistr.multi_worker_mirrored(communication=communication), seed=1, verbose=0,
            run_dir=Path(folder, "run"),
        )  # fmt: skip

    cases = json.loads(Path(sys.argv[1]).read_text())
    before = Path(sys.argv[1]).with_name("before")
    before.mkdir()
    fit(str(before), 1, "ring", True)  # until the fork server has come
    for case in cases:
        fit(**case)
