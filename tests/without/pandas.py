raise ImportError("tests do without pandas: see tests/conftest.py")
