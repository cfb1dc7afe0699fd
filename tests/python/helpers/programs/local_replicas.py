"""A worker with two devices: two logical CPUs stand for two GPUs."""

import json
import warnings

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.distribute.collective_all_reduce_strategy import CollectiveAllReduceExtended

import tfdistr

warnings.showwarning = lambda message, category, *_: print(category.__name__, message)
(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
one_device = CollectiveAllReduceExtended._initialize_local_devices


def two_devices(self: object, resolver: object, worker_device: str) -> tuple:
    _, kind = one_device(self, resolver, worker_device)
    return tuple(f"{worker_device}/device:CPU:{number}" for number in range(2)), kind


CollectiveAllReduceExtended._initialize_local_devices = two_devices
strategy = tfdistr.MultiWorkerMirroredStrategy()

x = np.arange(12.0, dtype="float32").reshape(6, 2)
y = x.sum(1)
with strategy.scope():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, kernel_initializer="zeros")])
    model.compile(keras.optimizers.SGD(0.001), "mse")
losses = model.fit(x, y, batch_size=6, epochs=2, verbose=0).history["loss"]
print(
    json.dumps({"replicas": strategy.num_replicas_in_sync, "workers": strategy.num_workers, "losses": losses})
)
