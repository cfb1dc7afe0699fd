"""R in Python: its values, functions, sessions, and messages in its voice."""
