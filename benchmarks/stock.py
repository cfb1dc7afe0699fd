"""Train without tfdistr: Keras 3's fit in one process, or tf-keras (Keras 2) under the stock strategy."""

import argparse
import os

import networks

parser = argparse.ArgumentParser()
parser.add_argument("system", choices=("keras", "tf-keras"))
parser.add_argument("network", choices=networks.NETWORKS)
parser.add_argument("folder")
parser.add_argument("--shares", type=int, default=1, help="workers whose batches make a step here")
parser.add_argument("--steps", type=int, help="train two epochs of so many steps")
given = parser.parse_args()
if given.system == "tf-keras":
    os.environ["TF_USE_LEGACY_KERAS"] = "1"

import tensorflow as tf  # noqa: E402

strategy = tf.distribute.get_strategy()  # one process
if given.system == "tf-keras":
    tf.config.threading.set_intra_op_parallelism_threads(2)  # faster than one, the default on one core
    strategy = tf.distribute.MultiWorkerMirroredStrategy()

import measure  # noqa: E402

if given.system == "tf-keras":
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
network.fit(
    dataset.with_options(options), epochs=epochs, verbose=0,
    callbacks=[measure.callback(given.folder, keras=keras)],
)  # fmt: skip
os._exit(0)  # the stock strategy may abort at exit when its peer is gone
