"""Supervision of workers: their events, the root cause of a failure, and the end of all of them."""
