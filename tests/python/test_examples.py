"""The scripts of examples/, run as a user runs them, on small data. Those in R are run by testthat."""

import os
import re
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import warm
from clusters import MPIEXEC, run_commands
from paths import EXAMPLES

import tfdistr
from tfdistr.network.ports import free_ports

pytestmark = pytest.mark.timeout(500)

ALONE = {"TF_CONFIG": "{}"}

#: A process: script, arguments and environment.
Task = tuple[str, list[str], dict[str, str]]


def outputs(*tasks: Task) -> list[str]:
    """What processes that are started together print."""
    scripts = [[str(EXAMPLES / script), *arguments] for script, arguments, _ in tasks]
    commands = [[sys.executable, warm.BORROWING, *script] for script in scripts]
    ended = run_commands(commands, [os.environ | env for *_, env in tasks], 240)
    for task in ended:
        assert task.status == 0, task.output[-3000:]
    return [task.output for task in ended]


def addresses(count: int) -> list[str]:
    return [f"127.0.0.1:{port}" for port in free_ports(count)]


def shown(script: str) -> str:
    """What the head of a script shows as its output."""
    return (EXAMPLES / script).read_text().split('"""')[1]


def val_losses(output: str) -> list[float]:
    """The validation loss of each epoch, and that of the result."""
    return [float(loss) for loss in re.findall(r"val_loss: ([\d.]+)$", output, re.MULTILINE)]


@pytest.mark.slow(reason="runs whole examples, in up to six processes")
def test_mnist_cnn_on_digits():
    (output,) = outputs(("mnist_cnn.py", ["digits", "2", "0.1"], ALONE))
    assert "Trained on 2 workers, 3 epochs, global batch 128, seed 1\n" in output
    first, second, third, of_result = val_losses(output)
    assert first > second > third == of_result


def lines_of_tasks(text: str) -> tuple[list[str], set[str], list[list[float]]]:
    """What each task prints, in their order: its name, how many tasks there are, its loss and accuracy."""
    line = r"^ *(\w+ \d) of (\d) tasks: loss ([\d.]+), accuracy ([\d.]+)$"
    found = sorted(re.findall(line, text, re.MULTILINE))
    values = [[float(loss), float(accuracy)] for *_, loss, accuracy in found]
    return [name for name, *_ in found], {count for _, count, *_ in found}, values


@pytest.mark.slow(reason="runs whole examples, in up to six processes")
def test_task_on_two_machines(tmp_path):
    model = tmp_path / "digits.keras"
    names, counts, [alone] = lines_of_tasks(*outputs(("two_machines/task.py", [str(model)], ALONE)))
    assert (names, counts) == (["chief 0"], {"1"})
    *_, in_head = lines_of_tasks(shown("two_machines/task.py"))
    assert in_head == [pytest.approx(alone, abs=0.05)] * 2  # other processors train with other kernels
    first, second = addresses(2)
    for plan, expected in (
        (tfdistr.tf_config(chief=first, worker=[second]), ["chief 0", "worker 0"]),
        (tfdistr.tf_config(worker=[first, second]), ["worker 0", "worker 1"]),  # the first is the chief
    ):
        model.unlink()
        printed = outputs(*(("two_machines/task.py", [str(model)], env) for env in plan.environments()))
        names, counts, (one, other) = lines_of_tasks("\n".join(printed))
        assert (names, counts) == (expected, {"2"})
        assert one == other == pytest.approx(alone, abs=1.01e-4)  # of the last digit
        assert list(tmp_path.iterdir()) == [model]  # and nothing of the other task's


def ports(count: int) -> str:
    return ",".join(map(str, free_ports(count)))


@pytest.mark.slow(reason="runs whole examples, in up to six processes")
def test_four_sessions(tmp_path):
    script, model = EXAMPLES / "two_machines" / "task.py", tmp_path / "four.keras"
    (output,) = outputs(("four_sessions.py", [ports(4), str(script), str(model)], ALONE))
    names, counts, values = lines_of_tasks(output)
    *in_head, expected = lines_of_tasks(shown("four_sessions.py"))
    assert [names, counts] == in_head == [[f"worker {index}" for index in range(4)], {"4"}]
    assert values == [values[0]] * 4
    assert values[0] == pytest.approx(expected[0], abs=0.05)
    assert list(tmp_path.iterdir()) == [model]


def test_four_sessions_end_if_one_fails(tmp_path):
    task = tmp_path / "task.py"
    task.write_text(
        "import os, pathlib, sys, time\n"
        "here = pathlib.Path(__file__).parent\n"
        "(here / str(os.getpid())).touch()\n"
        "while len(list(here.iterdir())) < 5: time.sleep(0.05)\n"
        "sys.exit(3) if '\"index\": 2' in os.environ['TF_CONFIG'] else time.sleep(200)\n"
    )
    command = [sys.executable, str(EXAMPLES / "four_sessions.py"), ports(4), str(task)]
    (ended,) = run_commands([command], [os.environ | ALONE], 100)
    assert ended.status == 1
    assert ended.output.endswith("Session 2 exited with status 3. The others were ended.\n")
    pids = [path.name for path in tmp_path.iterdir() if path != task]
    assert len(pids) == 4
    assert not [pid for pid in pids if Path("/proc", pid).exists()]


@pytest.mark.slow(reason="runs whole examples, in up to six processes")
def test_parameter_servers_on_digits():
    """Synchronously; that in R asynchronously, as it is by default."""
    (output,) = outputs(("parameter_servers.py", ["digits", "sync", "2"], ALONE))
    steps = re.findall(r"^worker \d: local steps (\d+), global step (\d+)$", output, re.MULTILINE)
    local = [int(own) for own, _ in steps]
    assert {int(total) for _, total in steps} == {45}
    assert local == [45, 45]
    first, second, third, of_result = val_losses(output)
    assert first > second > third == of_result
    assert [first, second, third, of_result] == pytest.approx(
        val_losses(shown("parameter_servers.py")), abs=0.05
    )


def history(output: str) -> list[list[float]]:
    """The rows of a history as they were printed: the epoch and four numbers."""
    rows = re.findall(r"^ *(\d+)((?: +\d\.\d+){4})$", output, re.MULTILINE)
    return [[float(epoch), *map(float, values.split())] for epoch, values in rows]


def check_writers(folder: Path) -> None:
    """The chief alone has saved the model, and has written events of training and of validation."""
    assert sorted(path.name for path in folder.iterdir()) == ["best.keras", "train", "validation"]
    assert zipfile.is_zipfile(folder / "best.keras")
    for name in ("train", "validation"):
        (events,) = (folder / name).iterdir()
        assert events.stat().st_size > 100


@pytest.mark.slow(reason="runs whole examples, in up to six processes")
@pytest.mark.usefixtures("with_pandas_once")
def test_sentences_by_fit_and_by_a_loop_on_devices_and_on_two_workers(tmp_path):
    def task(way: str, folder: str, env: dict[str, str], *strategy: str) -> Task:
        return "sentences.py", [way, str(tmp_path / folder), *strategy], env

    fit_one, mirrored = outputs(
        task("fit", "fit-1", ALONE), task("loop", "mirrored", ALONE, "mirrored", "cpu:0", "cpu:1")
    )
    plan = tfdistr.tf_config(worker=addresses(2))
    fit_two, fit_other = outputs(*(task("fit", "fit-2", env) for env in plan.environments()))
    rank = ["-n", "1", sys.executable, str(EXAMPLES / "sentences.py"), "loop", str(tmp_path / "loop-2")]
    (ranks,) = run_commands([[str(MPIEXEC), *rank, ":", *rank]], [os.environ | ALONE], 150)
    assert ranks.status == 0, ranks.output[-3000:]

    expected = history(fit_one)
    assert [row[0] for row in expected] == list(range(1, len(expected) + 1))
    assert 2 < len(expected) < 20  # EarlyStopping has stopped it
    for output in (mirrored, fit_two, ranks.output):  # the ranks' has one table: that of the chief
        assert len(history(output)) == len(expected), output[-3000:]
        for row, other in zip(expected, history(output), strict=True):
            assert row == pytest.approx(other, abs=1.01e-4)
    assert history(fit_other) == []
    for row, other in zip(expected, history(shown("sentences.py")), strict=False):
        assert row == pytest.approx(other, abs=0.05)
    for folder in tmp_path.iterdir():
        check_writers(folder)
    assert len(list(tmp_path.iterdir())) == 4


def lines_of_epochs(text: str) -> list[list[float]]:
    """The numbers of each epoch of examples/house_numbers.py, and which epoch it is."""
    found = re.findall(r"epoch \d: loss .*, test accuracy .*", text)
    return [list(map(float, re.findall(r"\d[\d.]*", line))) for line in found]


@pytest.mark.slow(reason="runs whole examples, in up to six processes")
def test_house_numbers_on_one_worker_and_on_two(tmp_path):
    (alone,) = outputs(("house_numbers.py", [str(tmp_path / "one.weights.h5")], ALONE))
    script, weights = str(EXAMPLES / "house_numbers.py"), str(tmp_path / "two.weights.h5")
    command = [sys.executable, "-m", "tfdistr", "run", "-n", "2", script, weights]
    (both,) = run_commands([command], [os.environ | ALONE], 240)
    assert both.status == 0, both.output[-3000:]
    one, two, in_head = map(lines_of_epochs, (alone, both.output, shown("house_numbers.py")))
    assert [row[0] for row in one] == [1, 2, 3, 4, 5]
    assert np.array(two) == pytest.approx(np.array(one), abs=1.01e-4)  # the chief's lines alone
    assert np.array(in_head) == pytest.approx(np.array(one), abs=0.05)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.weights.h5", "two.weights.h5"]


@pytest.mark.slow(reason="runs whole examples, in up to six processes")
def test_end_to_end_with_nccl(tmp_path):
    env = ALONE | {"CUDA_VISIBLE_DEVICES": ""}
    (output,) = outputs(("end_to_end.py", [str(tmp_path / "out"), "2", "nccl"], env))
    said, head = (" ".join(text.split()) for text in (output, shown("end_to_end.py")))
    warning = re.search(r"Warning: NCCL .* of this machine\.", head)[0]
    assert said.count(warning) == said.count("NCCL") == 1
    assert "Trained on 2 workers, 4 epochs, global batch 64, seed 1 accuracy:" in said
    rates = [f"epoch {epoch} ended with the learning rate {0.0739 if epoch == 1 else 0.1:.4f}"
             for epoch in range(1, 5)]  # fmt: skip
    assert said.endswith(" ".join(rates))
    assert " ".join(rates) in head
    assert val_losses(output) == pytest.approx(val_losses(shown("end_to_end.py")), abs=0.05)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["best.keras", "learning_rates.txt"]
