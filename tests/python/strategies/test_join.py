"""What TensorFlow's errors at the start of a worker's server mean."""

import tensorflow as tf

from tfdistr.errors import ClusterStartError
from tfdistr.strategies.join import start_error


def test_a_server_that_does_not_start():
    spec = tf.train.ClusterSpec({"worker": ["a:1", "b:2"]})
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(spec, task_type="worker", task_id=1)
    for text in ("Could not start gRPC server", "Address already in use"):
        error = start_error(tf.errors.UnknownError(None, None, f"{text}\nmore"), resolver, 5.0)
        assert isinstance(error, ClusterStartError)
        assert str(error).splitlines() == [
            "Cannot listen on the port of the task's address.",
            f"Received: worker 1 (b:2): {text}",
            "Fix: Stop the process that uses this task's port, or give the task another address.",
        ]
