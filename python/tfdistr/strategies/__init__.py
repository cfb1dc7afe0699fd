"""The strategies, by name, and what trains under them: losses, callbacks, custom training loops."""
