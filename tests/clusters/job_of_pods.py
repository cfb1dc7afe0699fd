"""Run pods on this machine, and start them again as their Job says.

    python job_of_pods.py FOLDER WORDS

The words are those of `tfdistr kubernetes write`.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "tools" / "lab"))
from pods import Pods, pods


def written(words: list[str]) -> list[dict]:
    """The objects of a script."""
    command = [sys.executable, "-m", "tfdistr", "kubernetes", "write", "--output", "-", *words]
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    items: list[dict] = json.loads(text)["items"]
    return items


def start(made: Pods, index: int, logs: Path) -> subprocess.Popen[bytes]:
    """Start a pod whose output is that of its worker's log."""
    with (logs / f"worker-{index}.log").open("ab") as log:
        return made.start(index, output=log)


def run(made: Pods, job: dict, logs: Path) -> int:
    """Run all pods until each has succeeded or too many have failed; return the status of the last."""
    rules = job["podFailurePolicy"]["rules"]
    ignored = {status for rule in rules for status in rule.get("onExitCodes", {}).get("values", [])}
    running = {index: start(made, index, logs) for index in range(made.count)}
    failed = 0
    try:
        while running:
            time.sleep(0.02)
            for index, process in list(running.items()):
                status = process.poll()
                if status is None:
                    continue
                del running[index]
                if status == 0:
                    continue
                message = made.message(index)
                print(f"pod {index} with status {status} failed: {message.read_text()}", flush=True)
                message.write_text("")
                failed += status not in ignored
                if failed > job["backoffLimit"]:
                    return status
                running[index] = start(made, index, logs)
        return 0
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.wait(30)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    (folder / "run" / "logs").mkdir(parents=True)
    manifests = written(sys.argv[2:])
    with pods(manifests, folder) as made:
        sys.exit(run(made, manifests[-1]["spec"], folder / "run" / "logs"))
