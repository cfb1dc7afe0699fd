"""The training of one process: the job, the loop over epochs and steps, the learning rate, the watchdog."""
