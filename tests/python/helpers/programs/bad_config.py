"""A process whose TF_CONFIG is not valid: it says so, and ends at once, as R does after an error."""

import os

from tfdistr.errors import ClusterConfigError
from tfdistr.rendezvous.meeting import cluster_to_join

try:
    cluster_to_join()
except ClusterConfigError as error:
    print(error, flush=True)
os._exit(1)
