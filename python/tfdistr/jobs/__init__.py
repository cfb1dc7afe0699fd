"""A job from its call to its result: in this process, or on the workers of a cluster."""
