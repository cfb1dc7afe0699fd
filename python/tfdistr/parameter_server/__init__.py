"""Training with parameter servers: ``strategy="parameter_server"``.

The parameter servers ("ps") hold the variables. Workers read them, compute gradients on batches that they
read themselves, and send them back. The chief hands out the steps, through TensorFlow's
``ClusterCoordinator``, and runs the callbacks. The workers and the parameter servers run ``servers.server``.
"""
