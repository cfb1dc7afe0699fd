"""Scripts of the user as the workers of a cluster: ``tfdistr run`` and ``tfdistr test``."""
