"""Whether fits on several numbers of workers are the same, and the likely reason if they are not."""
