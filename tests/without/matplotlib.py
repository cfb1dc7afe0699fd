raise ImportError("tests do without matplotlib: see tests/conftest.py")
