"""Where things are that tests use."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
#: Programs that tests start as processes of their own.
PROGRAMS = Path(__file__).parent / "programs"
#: Programs of workers that a launcher starts.
WORKERS = Path(__file__).parent / "workers"
#: MNIST as TensorFlow Datasets prepares it, which is not part of this repository.
TFDS = Path(os.environ.get("DATA_DIR") or ROOT.parent / "shared" / "tfds")
