"""One worker without tfdistr: Keras 3's fit in one process, or tf-keras (Keras 2) under the stock strategy.

Usage: stock.py keras|tf-keras NETWORK FOLDER
"""

import os
import sys

system, name, folder = sys.argv[1:]
if system == "tf-keras":
    os.environ["TF_USE_LEGACY_KERAS"] = "1"

import tensorflow as tf  # noqa: E402

strategy = tf.distribute.get_strategy()  # one process
if system == "tf-keras":
    tf.config.threading.set_intra_op_parallelism_threads(2)  # faster than one, the default on one core
    strategy = tf.distribute.MultiWorkerMirroredStrategy()

import measure  # noqa: E402
import networks  # noqa: E402

if system == "tf-keras":
    import tf_keras as keras
else:
    import keras

x, y = networks.data(name)
batch = networks.PER_WORKER_BATCH * strategy.num_replicas_in_sync
examples = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x), seed=1)
dataset = examples.batch(batch).prefetch(tf.data.AUTOTUNE)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
with strategy.scope():
    network = networks.model(name, keras)
network.fit(
    dataset.with_options(options), epochs=networks.NETWORKS[name].epochs, verbose=0,
    callbacks=[measure.callback(folder, keras=keras)],
)  # fmt: skip
os._exit(0)  # the stock strategy may abort at exit when its peer is gone
