"""What Python does at the start of each process of the tests, whose PYTHONPATH has this folder.

The import of TensorFlow makes many objects, and no garbage. By default the collector looks at them many times
meanwhile, and again at the end of the process.
"""

import atexit
import gc

gc.set_threshold(10_000, 10, 10)
atexit.register(gc.freeze)  # before all others, so it runs after them
