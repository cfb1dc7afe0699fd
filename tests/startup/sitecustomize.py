"""What Python does at the start of each process of the tests, whose PYTHONPATH has this folder.

The import of TensorFlow makes many objects, and no garbage. By default the collector looks at them many times
meanwhile, and again at the end of the process. And `typing` compiles the strings of annotations, the same few
thousands of times: without that, the import takes a tenth less time.
"""

import atexit
import functools
import gc
import typing

gc.set_threshold(10_000, 10, 10)
atexit.register(gc.freeze)  # before all others, so it runs after them
typing.compile = functools.cache(compile)  # a global of the module, in the place of the builtin
