"""The strategies, by name, and what trains under them: losses, callbacks, loops of the user."""
