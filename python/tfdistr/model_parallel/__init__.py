"""Layers of one model on several devices, or on the workers of a cluster."""
