"""The supervision of workers: their events, the root cause of a failure, and the shutdown of all of them."""
