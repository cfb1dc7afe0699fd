"""The order of the examples, and the share of each worker."""
