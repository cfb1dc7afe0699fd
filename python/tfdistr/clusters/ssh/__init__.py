"""Workers on hosts that ssh reaches."""
