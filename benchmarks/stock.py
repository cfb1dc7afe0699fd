"""One worker of stock tf-keras (Keras 2) under the stock strategy: prints the seconds of each epoch."""

import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import json
import time

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()

import seed_cnn  # noqa: E402
import tf_keras  # noqa: E402

x, y = seed_cnn.data()
batch = seed_cnn.PER_WORKER_BATCH * strategy.num_replicas_in_sync
examples = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x), seed=1)
dataset = examples.batch(batch).prefetch(tf.data.AUTOTUNE)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
with strategy.scope():
    network = seed_cnn.model(tf_keras)


class Seconds(tf_keras.callbacks.Callback):
    """Measures the epochs as tfdistr's own report does."""

    def on_train_begin(self, logs=None):
        self.epochs = []

    def on_epoch_begin(self, epoch, logs=None):
        self.began = time.monotonic()

    def on_epoch_end(self, epoch, logs=None):
        self.epochs.append(time.monotonic() - self.began)


seconds = Seconds()
network.fit(dataset.with_options(options), epochs=seed_cnn.EPOCHS, verbose=0, callbacks=[seconds])
print(json.dumps(seconds.epochs), flush=True)
os._exit(0)  # the stock strategy may abort at exit when its peer is gone
