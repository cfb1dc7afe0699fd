"""Train without tfdistr: Keras 3's fit in one process; tf-keras (Keras 2) under the stock strategy of
TensorFlow; or Keras 3 on JAX under ``keras.distribution.DataParallel`` with gloo.

The last needs RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as ddp.py does.
"""

import argparse
import os

import networks

parser = argparse.ArgumentParser()
parser.add_argument("system", choices=("keras", "tf-keras", "jax"))
parser.add_argument("network", choices=networks.NETWORKS)
parser.add_argument("folder")
parser.add_argument("--shares", type=int, default=1, help="workers whose batches make a step here")
parser.add_argument("--steps", type=int, help="train two epochs of so many steps")
given = parser.parse_args()


def on_jax():
    """The network, and the process's own part of the data in batches."""
    os.environ["KERAS_BACKEND"] = "jax"
    import jax

    rank, workers = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    jax.distributed.initialize(address, workers, rank)
    import keras

    keras.utils.set_random_seed(1)
    keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
    count, epochs = networks.amount(given.network, workers, given.steps)
    x, y = (part[:count][rank::workers] for part in networks.data(given.network))
    return keras, networks.model(given.network), epochs, (x, y, networks.PER_WORKER_BATCH)


def on_tensorflow():
    """The network, and a dataset that each worker divides."""
    if given.system == "tf-keras":
        os.environ["TF_USE_LEGACY_KERAS"] = "1"
    import tensorflow as tf

    strategy = tf.distribute.get_strategy()  # one process
    if given.system == "tf-keras":
        tf.config.threading.set_intra_op_parallelism_threads(2)  # faster than one, the default on one core
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        import tf_keras as keras
    else:
        import keras
    workers = given.shares * strategy.num_replicas_in_sync
    count, epochs = networks.amount(given.network, workers, given.steps)
    x, y = (part[:count] for part in networks.data(given.network))
    examples = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x), seed=1)
    dataset = examples.batch(networks.PER_WORKER_BATCH * workers).prefetch(tf.data.AUTOTUNE)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    with strategy.scope():
        network = networks.model(given.network, keras)
    return keras, network, epochs, (dataset.with_options(options),)


keras, network, epochs, data = on_jax() if given.system == "jax" else on_tensorflow()
import measure  # noqa: E402

network.fit(*data, epochs=epochs, verbose=0, callbacks=[measure.callback(given.folder, keras=keras)])
if given.system == "jax":
    import jax

    jax.distributed.shutdown()
os._exit(0)  # the stock strategy may abort at exit when its peer is gone
