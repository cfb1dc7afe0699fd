"""Warm starts: workers that are forks of a process which has imported TensorFlow and Keras already.

A fork server (server.py) imports what every worker needs, initialises nothing, and waits. For each worker it
forks itself. The fork sets right what it shares with the server (child.py), and runs the worker's program.
A launcher asks for it over a UNIX socket (client.py). Where the server must not fork, it refuses
(safety.py), and the launcher starts the worker cold. A session has one server for each language and for each
environment that libraries read while they are loaded (servers.py, environment.py).
"""
