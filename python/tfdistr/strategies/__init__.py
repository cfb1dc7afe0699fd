"""The strategies, by name, with their losses, callbacks and custom training loops."""
