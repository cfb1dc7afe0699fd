"""Processes that serve a chief: its workers, its parameter servers, and the holders of a model's parts."""
