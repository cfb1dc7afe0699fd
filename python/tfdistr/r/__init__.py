"""What knows R: its values and functions in Python, and the messages in its voice."""
