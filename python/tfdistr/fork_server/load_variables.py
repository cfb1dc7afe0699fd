"""The environment variables that libraries read at load: a fork has them from its server."""

from __future__ import annotations

import re
from collections.abc import Mapping

# Variables of the loader, Python, R, the locale, TensorFlow, Keras, their libraries, threads, GPUs and MPI.
_READ_AT_LOAD = re.compile(
    r"LD_.*|GLIBC_TUNABLES|MALLOC_.*|HOME|PATH|TZ|LANG|LANGUAGE|LC_.*|PYTHON.*|VIRTUAL_ENV|R_.*|RETICULATE_.*"
    r"|TF_.*|KERAS_.*|XLA_.*|TPU_.*|TFDS_.*|GRPC_.*|ABSL_.*|PROTOCOL_BUFFERS_.*|DNNL_.*|ONEDNN_.*"
    r"|OMP_.*|GOMP_.*|KMP_.*|MKL_.*|OPENBLAS_.*|BLIS_.*|NUMEXPR_.*|NPY_.*|VECLIB_.*"
    r"|CUDA_.*|CUDNN_.*|NVIDIA_.*|NCCL_.*|HIP_.*|ROCR_.*"
    r"|MPI4PY_.*|MPICH_.*|MPIR_.*|OMPI_MCA_.*|UCX_.*|FI_.*|HWLOC_.*"
)
# Set by a launcher for one process, or by R for its own session.
_OF_ONE_PROCESS = ("TF_CONFIG", "R_SESSION_TMPDIR")


def is_read_at_load(name: str) -> bool:
    """Return whether a server and its forks must have the same value of an environment variable."""
    return name not in _OF_ONE_PROCESS and _READ_AT_LOAD.fullmatch(name) is not None


def read_at_load(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of ``env`` that libraries read at load."""
    return {name: value for name, value in env.items() if is_read_at_load(name)}
