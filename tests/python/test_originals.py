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
    "custom_loop.py": {"BATCH_SIZE_PER_REPLICA": 64},
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


def run(text: str, folders: Sequence[Path], environments: Sequence[Mapping[str, str]]) -> list[Values]:
    """Return the results of each process that runs the script. Several may share one folder."""
    commands = []
    for number, folder in enumerate(folders):
        folder.mkdir(exist_ok=True)
        script = folder / "script.py"
        script.write_text(text)
        results = folder / f"results-{number}.npz"
        commands.append([sys.executable, str(ORIGINALS / "run.py"), str(script), str(results)])
    ended = run_commands(commands, [os.environ | NO_GPU | env for env in environments], 240)
    for process in ended:
        assert process.status == 0, process.output[-4000:]
    return [dict(np.load(command[3])) for command in commands]


def one_process(text: str, folder: Path, environment: Mapping[str, str] = ALONE) -> Values:
    """Return the result of a script in one process, which has learned something."""
    (values,) = run(text, [folder / "one"], [environment])
    assert values["loss"][-1] < values["loss"][0]
    return values


def cluster(workers: int) -> list[dict[str, str]]:
    """The environments of the tasks of a cluster on this machine."""
    return tfdistr.tf_config(worker=[f"127.0.0.1:{port}" for port in free_ports(workers)]).environments()


def assert_as_one(workers: list[Values], one: Values) -> None:
    for values in workers:
        assert values.keys() == one.keys()
        for name, value in one.items():
            np.testing.assert_allclose(values[name], value, atol=BOUND, rtol=BOUND, err_msg=name)


def test_four_workers(tmp_path):
    one = one_process(undistributed("four_workers.py", 2), tmp_path, cluster(1)[0])
    text = renamed("four_workers.py", STOCK, STOCK)
    assert_as_one(run(text, [tmp_path] * 2, cluster(2)), one)


def test_custom_loop_on_workers(tmp_path):
    one = one_process(undistributed("custom_loop.py", 2), tmp_path)
    text = renamed("custom_loop.py", "MirroredStrategy", STOCK)
    machines = [tmp_path / str(number) for number in range(2)]  # each saves a checkpoint of its own
    assert_as_one(run(text, machines, cluster(2)), one)
