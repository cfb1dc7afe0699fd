"""Training with parameter servers: ``strategy="parameter_server"``.

The parameter servers ("ps") hold the variables. The workers read the variables, compute gradients on batches
that they read themselves, and send the gradients back. The chief sends the steps to the workers, through
TensorFlow's ``ClusterCoordinator``, and runs the callbacks. The workers and the parameter servers run
``servers.server_task``.
"""
