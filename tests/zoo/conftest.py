"""Models that others wrote, in the environment of tools/setup-beside.sh."""

import os

# keras-hub imports IPython, if it is installed, which most tests do without: see tests/conftest.py.
os.environ["PYTHONPATH"] = os.pathsep.join(
    path for path in os.environ["PYTHONPATH"].split(os.pathsep) if not path.endswith("/without")
)
