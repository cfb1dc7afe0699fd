"""The kernels that TensorFlow uses on CPUs."""

from __future__ import annotations

from tensorflow.python.util import _pywrap_util_port


def onednn_is_on() -> bool:
    """Return whether TensorFlow uses its oneDNN kernels.

    (``IsMklEnabled``, which TensorFlow's own tests ask. A public function tells only with what TensorFlow was
    built, not what TF_ENABLE_ONEDNN_OPTS and the processor have made of it.)
    """
    return bool(_pywrap_util_port.IsMklEnabled())
