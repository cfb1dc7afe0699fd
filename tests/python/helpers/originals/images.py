"""Small images in place of MNIST, with the form of ``keras.datasets.mnist``."""

import numpy as np

import tfdistr


def load_data() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """The training images and labels, and the test images and labels: 8 by 8 pixels from 0 to 255."""
    parts = []
    for split in ("train", "test"):
        images, labels = tfdistr.load_dataset("digits", split).arrays()
        parts.append(((images[..., 0] * 15.9375).astype("uint8"), labels.astype("int64")))
    return parts[0], parts[1]
