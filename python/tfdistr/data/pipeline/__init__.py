"""The way from the user's data to the batches of one worker."""
