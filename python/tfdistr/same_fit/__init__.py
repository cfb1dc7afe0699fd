"""The comparison of fits on several numbers of workers, and the likely reason for a difference."""
