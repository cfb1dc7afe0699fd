"""Workers that were started one by one: they resume after they were told to end, and must be alike."""

import json
import os
import re

import pytest
from clusters import Ended, run_cluster

from tfdistr.checkpoint.folder import CheckpointFolder, checkpoint_folder


def by_hand(what, folder) -> list[Ended]:
    return run_cluster("recovery_by_hand.py", 2, [what, str(folder)], timeout=150)


@pytest.mark.slow(reason="trains on workers again and again")
@pytest.mark.timeout(600)
def test_they_go_on_from_the_chiefs_checkpoint(tmp_path):
    told = by_hand("told", tmp_path / "run")
    assert [worker.status for worker in told] == [75, 75], told[0].output[-3000:]
    fixes = [re.search(r"Fix: Repeat the call .*", worker.output)[0] for worker in told]
    assert fixes == [
        f"Fix: Repeat the call with run_dir='{tmp_path / 'run' / '0'}' and resume=True.",
        "Fix: Repeat the call with resume=True.",
    ]
    assert os.listdir(tmp_path / "run") == ["0"]  # the other's folder is not needed
    assert CheckpointFolder(checkpoint_folder(tmp_path / "run" / "0")).positions()
    resumed, full = by_hand("resume", tmp_path / "run"), by_hand("train", tmp_path / "full")
    for mine, other in zip(resumed, full, strict=True):
        digests = [re.search(r"trained: (\w+)", worker.output) for worker in (mine, other)]
        assert all(digests), mine.output[-3000:]
        assert digests[0][1] == digests[1][1]


def test_workers_that_begin_with_other_weights_are_refused(tmp_path):
    for worker in by_hand("noise", tmp_path):
        refused = re.search(r"refused: (.*)", worker.output)
        assert refused, worker.output[-3000:]
        assert "Received: other weights than those of worker 0 on worker 1" in json.loads(refused[1])
