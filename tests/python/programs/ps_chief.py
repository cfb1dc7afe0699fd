"""The chief of parameter servers that a launcher has started: python ps_chief.py RUN_DIR INDEX."""

from __future__ import annotations

import os
import socket
import sys
import time
import traceback
from pathlib import Path

from tfdistr.events import EventWriter
from tfdistr.launch import die_with_parent
from tfdistr.parameter_server import train_as_chief
from tfdistr.peer_failure import is_peer_failure


def main(run_dir: Path, index: int) -> int:
    die_with_parent()
    events, began = EventWriter(run_dir, index), time.monotonic()
    events.write("started", pid=os.getpid(), host=socket.gethostname())
    try:
        trained = train_as_chief(run_dir, events.write)
        from tfdistr.result import save_training

        save_training(trained, run_dir)
        events.write("done", seconds=time.monotonic() - began)
        return 0
    except BaseException as error:
        text = "".join(traceback.format_exception(error))
        print(text, file=sys.stderr, flush=True)
        fields = {"error_type": type(error).__name__, "message": str(error), "traceback": text}
        events.write("failed", **fields, language="python", peer=is_peer_failure(error))
        return 1


if __name__ == "__main__":
    status = main(Path(sys.argv[1]), int(sys.argv[2]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
