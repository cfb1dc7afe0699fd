"""Scripts for TensorFlow's strategies train on many workers, though only the strategy's name is changed.

The scripts in ``helpers/originals`` are for ``tf.distribute``. The changed scripts must give what they give
with the default strategy of TensorFlow, which distributes nothing, in one process whose batch is that of all
replicas.
"""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from clusters import NO_GPU, run_commands

import tfdistr
from tfdistr.network.ports import free_ports

pytestmark = pytest.mark.timeout(400)

BOUND = 1e-6  # as in tests/equality
ORIGINALS = Path(__file__).parent / "helpers" / "originals"
STOCK = "MultiWorkerMirroredStrategy"
ALONE = {"TF_CONFIG": "{}"}
#: What a script has for each replica.
PER_REPLICA: Mapping[str, Mapping[str, float]] = {
    "four_workers.py": {"per_worker_batch_size": 64},
    "two_machines.py": {},
    "mirrored_fit.py": {"BATCH_SIZE_PER_REPLICA": 64},
    "custom_loop.py": {"BATCH_SIZE_PER_REPLICA": 64},
    "hpc.py": {"batch_size_per_worker": 32, "learning_rate_per_worker": 0.02},
}

#: What a process has trained, by name.
Values = dict[str, np.ndarray]


def original(script: str, replicas: int = 1) -> str:
    """The text of a script. A process that takes the place of several replicas has the numbers of all."""
    text = (ORIGINALS / script).read_text()
    for name, value in PER_REPLICA[script].items():
        assert text.count(f"\n{name} = {value}\n") == 1
        text = text.replace(f"\n{name} = {value}\n", f"\n{name} = {replicas * value}\n")
    return text


def renamed(script: str, stock: str, name: str) -> str:
    """The text of a script with another strategy, and an import: nothing else changes."""
    text = original(script)
    assert text.count(f"tf.distribute.{stock}(") == text.count("import tensorflow as tf\n") == 1
    text = text.replace(f"tf.distribute.{stock}(", f"tfdistr.{name}(")
    return text.replace("import tensorflow as tf\n", "import tensorflow as tf\n\nimport tfdistr\n")


def undistributed(script: str, replicas: int) -> str:
    """The text of a script whose strategy distributes nothing."""
    stock = re.compile(r"^strategy = tf\.distribute\.\w+\([^()]*\)$", re.MULTILINE)
    text, count = stock.subn("strategy = tf.distribute.get_strategy()", original(script, replicas))
    assert count == 1
    return text


def run(
    text: str, folders: Sequence[Path], environments: Sequence[Mapping[str, str]], devices: int = 0
) -> list[Values]:
    """Return the results of each process that runs the script. Several may share one folder."""
    commands = []
    for number, folder in enumerate(folders):
        folder.mkdir(exist_ok=True)
        script = folder / "script.py"
        script.write_text(text)
        results = folder / f"results-{number}.npz"
        command = [sys.executable, str(ORIGINALS / "run.py"), str(script), str(results)]
        commands.append(command + ([str(devices)] if devices else []))
    ended = run_commands(commands, [os.environ | NO_GPU | env for env in environments], 240)
    for process in ended:
        assert process.status == 0, process.output[-4000:]
    return [dict(np.load(command[3])) for command in commands]


def one_process(text: str, folder: Path, environment: Mapping[str, str] = ALONE) -> Values:
    """Return the result of a script in one process, which has learned something."""
    (values,) = run(text, [folder / "one"], [environment])
    assert values["loss"][-1] < values["loss"][0]
    return values


def cluster(workers: int, *, chief: bool = False) -> list[dict[str, str]]:
    """The environments of the tasks of a cluster on this machine."""
    first, *others = (f"127.0.0.1:{port}" for port in free_ports(workers))
    jobs = {"chief": first, "worker": others} if chief else {"worker": [first, *others]}
    return tfdistr.tf_config(**jobs).environments()


def assert_as_one(workers: list[Values], one: Values) -> None:
    for values in workers:
        assert values.keys() == one.keys()
        for name, value in one.items():
            np.testing.assert_allclose(values[name], value, atol=BOUND, rtol=BOUND, err_msg=name)


def test_four_workers(tmp_path):
    one = one_process(undistributed("four_workers.py", 2), tmp_path, cluster(1)[0])
    text = renamed("four_workers.py", STOCK, STOCK)
    assert_as_one(run(text, [tmp_path] * 2, cluster(2)), one)


def test_two_machines(tmp_path):
    one = one_process(original("two_machines.py"), tmp_path)  # TensorFlow's strategy has a cluster_resolver
    assert "evaluated accuracy" in one
    text = renamed("two_machines.py", STOCK, STOCK)
    assert_as_one(run(text, [tmp_path] * 2, cluster(2, chief=True)), one)
    assert [path.name for path in tmp_path.glob("*.keras")] == ["digits.keras"]
    assert not list(tmp_path.glob("workertemp*"))


def test_hpc(tmp_path):
    one = one_process(undistributed("hpc.py", 2), tmp_path)
    assert_as_one(run(renamed("hpc.py", STOCK, STOCK), [tmp_path] * 2, cluster(2)), one)
    check_writers(tmp_path / "out")


def check_writers(folder: Path) -> None:
    """The chief has written after each epoch."""
    assert sorted(path.name for path in folder.iterdir()) == ["1.keras", "2.keras", "3.keras", "log.csv"]
    assert len((folder / "log.csv").read_text().splitlines()) == 4


def test_custom_loop_on_workers(tmp_path):
    one = one_process(undistributed("custom_loop.py", 2), tmp_path)
    text = renamed("custom_loop.py", "MirroredStrategy", STOCK)
    machines = [tmp_path / str(number) for number in range(2)]  # each saves a checkpoint of its own
    assert_as_one(run(text, machines, cluster(2)), one)


def test_mirrored_on_two_devices(tmp_path):
    script = "mirrored_fit.py"
    one = one_process(undistributed(script, 2), tmp_path)
    text = renamed(script, "MirroredStrategy", "MirroredStrategy")
    assert_as_one(run(text, [tmp_path], [ALONE], devices=2), one)
