"""A process whose TF_CONFIG is not valid: it says so, and ends at once, as R does after an error."""

import os

from tfdistr.cluster.rendezvous import cluster_to_join
from tfdistr.errors import ClusterConfigError

try:
    cluster_to_join()
except ClusterConfigError as error:
    print(error, flush=True)
os._exit(1)
