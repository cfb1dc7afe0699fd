"""The steps of a run again: ``replay()`` and ``bisect()``. The module is not called as the function is."""
