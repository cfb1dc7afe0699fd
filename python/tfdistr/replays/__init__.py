"""The steps of a run again: ``replay()``, ``bisect()`` and ``verify()``. The module is not called as the function is."""
