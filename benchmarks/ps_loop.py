"""A task of TensorFlow 1's own loop with a parameter server, as books of its time have it.

python ps_loop.py TASK INDEX ADDRESSES UPDATE STEPS FOLDER

TASK is "ps" or "worker", ADDRESSES is a JSON object of the jobs. The first worker saves to FOLDER/speed how
many updates of the weights in a second all workers have made after the first quarter of STEPS. Then all end.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

BATCH, EXAMPLES, CLASSES = 100, 55_000, 10
RATE = 0.5


def examples() -> tuple[Any, Any]:
    """Images and labels of the size of MNIST's, which a softmax regression can learn."""
    random = np.random.default_rng(1)
    x = random.random((EXAMPLES, 784), "float32")
    scores = (x - 0.5) @ random.normal(size=(784, CLASSES)).astype("float32")
    return x, scores.argmax(1)


def optimizer_of(v1: Any, update: str, workers: int) -> Any:
    """The optimizer, which waits for all workers if the updates are synchronous."""
    inner = v1.train.GradientDescentOptimizer(RATE)
    if update == "async":
        return inner
    return v1.train.SyncReplicasOptimizer(inner, replicas_to_aggregate=workers, total_num_replicas=workers)


def train(server: Any, index: int, workers: int, update: str, steps: int, folder: Path) -> None:
    """Make ``steps`` updates of the weights together with the other workers."""
    import tensorflow as tf

    v1 = tf.compat.v1
    x, y = examples()
    here = f"/job:worker/task:{index}"
    setter = v1.train.replica_device_setter(worker_device=here, cluster=server.server_def.cluster)
    with v1.device(setter):
        images, labels = v1.placeholder(tf.float32, [None, 784]), v1.placeholder(tf.int64, [None])
        global_step = v1.train.get_or_create_global_step()
        weights = v1.get_variable("weights", [784, CLASSES], initializer=v1.zeros_initializer())
        bias = v1.get_variable("bias", [CLASSES], initializer=v1.zeros_initializer())
        logits = tf.matmul(images, weights) + bias
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), labels), tf.float32))
        optimizer = optimizer_of(v1, update, workers)
        step = optimizer.minimize(loss, global_step=global_step)
    hooks = [v1.train.StopAtStepHook(last_step=steps)]
    if update == "sync":
        hooks.append(optimizer.make_session_run_hook(is_chief=index == 0))
    ready = folder / "ready"
    while index and not ready.exists():  # else TensorFlow looks for the chief only every 30 s
        time.sleep(0.1)
    random, began, first, made = np.random.default_rng(index), 0.0, 0, 0
    with v1.train.MonitoredTrainingSession(server.target, is_chief=index == 0, hooks=hooks) as session:
        ready.touch()
        while not session.should_stop():
            rows = random.integers(len(x), size=BATCH)
            *_, made = session.run([step, loss, accuracy, global_step], {images: x[rows], labels: y[rows]})
            if not began and made >= steps // 4:
                began, first = time.monotonic(), made
        if index == 0:
            Path(folder, "part").write_text(str((made - first) / (time.monotonic() - began)))
            Path(folder, "part").rename(folder / "speed")


def main() -> None:
    from tensorflow.compat import v1

    v1.disable_v2_behavior()
    task, index, addresses, update, steps, name = sys.argv[1:]
    cluster, folder = json.loads(addresses), Path(name)
    server = v1.train.Server(cluster, job_name=task, task_index=int(index))
    if task == "worker":
        given = (server, int(index), len(cluster["worker"]), update, int(steps), folder)
        threading.Thread(target=train, args=given, daemon=True).start()
    while not (folder / "speed").exists():  # a worker would wait for the next synchronous step for ever
        time.sleep(0.1)
    os._exit(0)


if __name__ == "__main__":
    main()
