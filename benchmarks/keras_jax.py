"""One process of Keras 3 on JAX, under ``keras.distribution.DataParallel`` with gloo.

Usage: keras_jax.py [--steps STEPS] NETWORK FOLDER
(with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as ddp.py has them)
"""

import argparse
import os

os.environ["KERAS_BACKEND"] = "jax"

import jax
import networks

parser = argparse.ArgumentParser()
parser.add_argument("network", choices=networks.NETWORKS)
parser.add_argument("folder")
parser.add_argument("--steps", type=int, help="train two epochs of so many steps")
given = parser.parse_args()

rank, workers = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}", workers, rank)

import keras  # noqa: E402
import measure  # noqa: E402

keras.utils.set_random_seed(1)
# Each process has its own part of the data.
keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
count, epochs = networks.amount(given.network, workers, given.steps)
x, y = (part[:count][rank::workers] for part in networks.data(given.network))
networks.model(given.network).fit(
    x, y, batch_size=networks.PER_WORKER_BATCH, epochs=epochs, verbose=0,
    callbacks=[measure.callback(given.folder)],
)  # fmt: skip
jax.distributed.shutdown()
os._exit(0)  # as the other systems end
