"""Copies of a compiled model in other processes, exact or refused."""
