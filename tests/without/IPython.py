raise ImportError("tests do without IPython: see tests/conftest.py")
