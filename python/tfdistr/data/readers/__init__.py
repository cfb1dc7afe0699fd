"""Data sets in files of a known format, one module for each format."""
