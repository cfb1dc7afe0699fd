"""Processes that serve a chief: its workers, its parameter servers, and the parts of a model."""
