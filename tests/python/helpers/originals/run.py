"""Runs a script of a user, and writes what it has trained.

Usage: run.py SCRIPT RESULTS

The script runs in its folder. RESULTS gets its weights and its history. It computes in float64: a rounding of
float32 may switch a unit of relu, which changes weights visibly.
"""

import os
import runpy
import sys
from pathlib import Path

import keras
import numpy as np

script, results = sys.argv[1:]
sys.path.insert(0, str(Path(__file__).parent))
os.chdir(Path(script).parent)
keras.config.set_floatx("float64")
sys.argv = [script]
left = runpy.run_path(script, run_name="__main__")
values = {f"weight {number}": weight for number, weight in enumerate(left["model"].get_weights())}
values |= left["history"].history if "history" in left else left["log"]
np.savez(results, **values)
