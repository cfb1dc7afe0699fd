"""Workers on hosts that ssh reaches."""

#: The program that runs a worker on a host, in the folder of the package there.
GUARD = "clusters/ssh/guard.py"
