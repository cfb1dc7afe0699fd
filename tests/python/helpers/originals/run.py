"""Runs a script of a user, and writes what it has trained.

Usage: run.py SCRIPT RESULTS [DEVICES]

The script runs in its folder, with DEVICES logical CPUs. RESULTS gets the script's weights, its history and
what it has evaluated. It computes in float64: a rounding of float32 may switch a unit of relu, which changes
weights visibly.
"""

import os
import runpy
import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

script, results, *devices = sys.argv[1:]
sys.path.insert(0, str(Path(__file__).parent))
os.chdir(Path(script).parent)
if devices:
    (cpu,) = tf.config.list_physical_devices("CPU")
    each = [tf.config.LogicalDeviceConfiguration()] * int(devices[0])
    tf.config.set_logical_device_configuration(cpu, each)
keras.config.set_floatx("float64")
sys.argv = [script]
left = runpy.run_path(script, run_name="__main__")
values = {f"weight {number}": weight for number, weight in enumerate(left["model"].get_weights())}
values |= left["history"].history if "history" in left else left["log"]
values |= {f"evaluated {name}": value for name, value in left.get("evaluated", {}).items()}
np.savez(results, **values)
