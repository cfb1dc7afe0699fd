"""Warm starts: workers are forks of a fork server, which has imported TensorFlow and Keras already.

A fork server (server.py) imports what every worker needs, initialises nothing, and waits. It forks itself for
each worker. The fork resets the state that it shares with the server (child.py), and runs the worker's
program. A launcher asks for a fork over a UNIX socket (client.py). If a fork is not safe, the server refuses,
and the launcher starts the worker cold. A session has one server for each language and for each set of
environment variables that libraries read while they are loaded (servers.py).
"""
