"""keras.applications, on images that are as small as each model takes them."""

from typing import Any

import keras
from zoo import ROUNDED, ROWS, compiled, labelled_images, large

applications = keras.applications
IMAGES = labelled_images(32)


def application(build: Any, side: int = 32, **arguments: Any) -> keras.Model:
    return compiled(build(input_shape=(side, side, 3), weights=None, classes=3, **arguments))


@large(data=IMAGES, only_virtual=ROWS)
def mobilenet_v2():
    return application(applications.MobileNetV2, alpha=0.35)


@large(data=IMAGES, bound=ROUNDED)
def convnext_tiny():
    return application(applications.ConvNeXtTiny)
