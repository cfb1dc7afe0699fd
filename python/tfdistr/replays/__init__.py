"""The steps of a run again: ``replay()``, ``bisect()`` and ``verify()``, in modules of other names."""
