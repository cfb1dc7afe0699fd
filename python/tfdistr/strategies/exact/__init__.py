"""Steps on shares of a global batch that add up to the step of one worker."""
