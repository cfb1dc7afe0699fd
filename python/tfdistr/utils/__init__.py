"""Helpers that every layer uses: arguments, the environment, trusted files. No code for training."""
