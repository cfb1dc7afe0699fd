"""NCCL where there is no GPU: the ring takes its place, and the user is told once."""

import os
import sys

import pytest
from clusters import NO_GPU, run_commands

import tfdistr
from tfdistr.network.ports import free_ports

WARNING = (
    "NCCL needs a GPU on every worker, and TensorFlow sees none here: the workers exchange gradients with "
    'the ring. Pass communication="ring", or install a TensorFlow that can use the GPUs of this machine.'
)

PROGRAM = """
import tfdistr

strategy = tfdistr.make_strategy(communication="nccl")
import tensorflow as tf

added = strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.constant(2.0)))
print("the sum is", float(added))
"""


@pytest.mark.timeout(150)
@pytest.mark.slow(reason="starts two processes that train")
def test_the_ring_takes_its_place_and_the_chief_says_so(tmp_path):
    """Of a worker alone, and of a cluster of two."""
    plan = tfdistr.tf_config(worker=[f"127.0.0.1:{port}" for port in free_ports(2)])
    tasks = [{"TF_CONFIG": ""}, *plan.environments()]
    environments = [os.environ | task | NO_GPU for task in tasks]
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    alone, chief, other = run_commands([[sys.executable, str(program)]] * 3, environments, 120)
    for process, total, warnings in ((alone, 2.0, 1), (chief, 4.0, 1), (other, 4.0, 0)):
        assert process.status == 0, process.output[-3000:]
        assert f"the sum is {total}\n" in process.output
        assert process.output.count(WARNING) == warnings
        assert "Enabled NCCL" not in process.output  # what TensorFlow says of NCCL that it was asked for
