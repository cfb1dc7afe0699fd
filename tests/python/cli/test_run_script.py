"""`tfdistr run`: a script as workers, its output, its end, and what ends it."""

import json
import re
import signal
import tempfile
import time

import pytest
from scripts import losses, train, wait_for_workers
from slow import mostly_slow

from tfdistr.cli.main import run

pytestmark = pytest.mark.timeout(240)

WAITS = "import time\ntime.sleep(100)\n"


def test_a_script_trains_on_its_workers_as_one(start, tmp_path):
    said, error = start("run", "-n", "2", "train.py", script=train()).communicate(timeout=200)
    assert len(losses(said)) == 2, said + error
    alone, _ = start("run", "-n", "1", "train.py", script=train()).communicate(timeout=200)
    for of_worker in losses(said):
        assert of_worker == pytest.approx(losses(alone)[0], rel=1e-6)
    assert " 2 mpi" in said or " 2 ring" in said
    assert not list(tmp_path.glob("tfdistr-*"))  # its run directory


def test_arguments_output_and_environment(start):
    script = (
        "import sys, os, tfdistr\n"
        "print(sys.argv[1:], __name__, os.environ['A'], tfdistr.worker_index(), sys.path[0] == os.getcwd())\n"
        "print('to the standard error', file=sys.stderr)\n"
    )
    words = ["run", "-n", "2", "--env", "A=x=y", "train.py", "--epochs", "2", "-n", "5"]
    process = start(*words, script=script)
    said, error = process.communicate(timeout=100)
    assert process.returncode == 0, error
    for worker in (0, 1):
        assert (
            f"[worker {worker}] ['--epochs', '2', '-n', '5'] __main__ x=y {worker} True" in said.splitlines()
        )
    assert said.count("to the standard error") == 2
    assert error == ""


# Slow: starts a session for each worker.
@pytest.mark.parametrize("communication", mostly_slow(["mpi", "ring"], quick=["mpi"]))
def test_the_first_failure_is_named(start, communication):
    script = (
        "import tfdistr, time\n"
        "def breaks():\n    raise ValueError('worker one is broken')\n"
        "if tfdistr.worker_index() == 1:\n    breaks()\n"
        "time.sleep(100)\n"
    )
    process = start("run", "-n", "2", "--communication", communication, "train.py", script=script)
    said, error = process.communicate(timeout=100)
    assert process.returncode == 1
    assert re.match(r"Worker 1 of 2 on \S+ failed: ValueError: worker one is broken\n", error), error
    assert "in breaks" in error
    assert "cli/script_worker.py" not in error  # the traceback begins in the script
    assert "[worker 1] ValueError: worker one is broken" in said


SLOW = pytest.mark.slow(reason="starts a session for each worker")


@pytest.mark.parametrize(
    ("end", "status", "words"),
    [
        ("sys.exit(7)", 7, "exited with status 7"),
        pytest.param("sys.exit('no more')", 1, "no more", marks=SLOW),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, "was killed by SIGKILL"),
        pytest.param("raise SystemExit", 0, "", marks=SLOW),
        pytest.param("compile('1 +', 'x', 'exec')", 1, "failed: SyntaxError", marks=SLOW),
    ],
)
def test_the_exit_status(start, end, status, words):
    process = start("run", "-n", "1", "train.py", script=f"import sys, os, signal\n{end}\n")
    _, error = process.communicate(timeout=100)
    assert process.returncode == status
    assert words in error


def test_ctrl_c_ends_all_workers(start, tmp_path):
    process = start("run", "-n", "3", "train.py", script=WAITS)
    wait_for_workers(tmp_path, 3)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert error == "Interrupted: all workers were ended.\n"


# Slow: starts a session for each worker.
@pytest.mark.parametrize("communication", mostly_slow(["mpi", "ring"], quick=["ring"]))
def test_sigterm_reaches_the_script(start, tmp_path, communication):
    saves = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('saved', flush=True), sys.exit(75)))\n"
        "pathlib.Path(f'ready-{os.getpid()}').touch()\ntime.sleep(100)\n"
    )
    process = start("run", "-n", "2", "--communication", communication, "train.py", script=saves)
    wait_for_workers(tmp_path, 2)
    end = time.monotonic() + 20
    while len(list(tmp_path.glob("ready-*"))) < 2 and time.monotonic() < end:
        time.sleep(0.05)
    process.terminate()
    said, error = process.communicate(timeout=60)
    assert process.returncode == 75, error
    assert sorted(said.split("\n")[:2]) == ["[worker 0] saved", "[worker 1] saved"]
    assert error == (
        "The script was told to end (SIGTERM).\n"
        "Fix: Run it again: a distributed_fit() with resume=True continues at its checkpoint.\n"
    )


@pytest.mark.slow(reason="starts a session for each worker")
def test_sigterm_ends_a_script_that_saves_nothing(start, tmp_path):
    process = start("run", "-n", "2", "train.py", script=WAITS)
    wait_for_workers(tmp_path, 2)
    process.terminate()
    _, error = process.communicate(timeout=60)
    assert process.returncode == 75
    assert error.startswith("The script was told to end (SIGTERM), and ended without a checkpoint.\n")
    assert "Fix: Train with checkpoint_every= and resume=True, so that it continues later." in error


def test_restarts(start, tmp_path):
    script = (
        "if len(list(pathlib.Path().glob('pid-*'))) < 3:\n    raise RuntimeError('too early')\n"
        "print('well')\n"
    )
    words = ["run", "-n", "1", "--max-restarts", "2", "--run-dir", "runs/1", "train.py"]
    process = start(*words, script=script)
    said, error = process.communicate(timeout=100)
    assert process.returncode == 0
    assert error.count("Starting the workers again: Worker 1 of 1") == 0
    assert error.count("Starting the workers again: Worker 0 of 1 on ") == 2
    assert said.endswith("[worker 0] well\n")
    logs = tmp_path / "runs/1/logs"
    assert {path.name for path in logs.iterdir()} >= {"worker-0.log", "worker-0.log.failed-1"}

    process = start("run", "-n", "1", "--max-restarts", "1", "train.py", script="raise RuntimeError('never')")
    _, error = process.communicate(timeout=100)
    assert process.returncode == 1
    assert error.count("Starting the workers again") == 1


def test_run_dir_and_log_dir(start, tmp_path):
    words = ["run", "-n", "2", "--run-dir", "run", "--log-dir", "logs", "train.py"]
    process = start(*words, script="print('hello')")
    assert process.wait(100) == 0
    assert (tmp_path / "logs/worker-1.log").read_text() == "hello\n"
    events = (tmp_path / "run/workers/1/events.jsonl").read_text().splitlines()
    assert [json.loads(event)["event"] for event in events] == ["started", "ready", "done"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "`tfdistr run` needs a script.\nReceived: no script\n"),
        (["train.sh"], "The script must be a file of Python (.py) or R (.R).\nReceived: 'train.sh'\n"),
        (["--log-dir", "train.py", "train.py"], "`log_dir` must be a folder, or be free for one.\n"),
        (["other.py"], "The script must be a file that exists.\nReceived: other.py, seen from {folder}\n"),
        (["train.R"], "A script of R needs R.\nReceived: no Rscript on PATH\n"),
    ],
)
def test_what_cannot_be_run(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("train.py", "train.sh", "train.R"):
        (tmp_path / name).write_text("print('never')")
    assert run(["run", *words]) == 2
    said = capsys.readouterr()
    assert said.err.startswith(message.format(folder=tmp_path)), said.err
    assert said.out == ""
