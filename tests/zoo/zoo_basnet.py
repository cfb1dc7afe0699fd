"""BASNet as keras.io writes it: seven outputs of one decoder, refined, and a loss of three parts. Small."""

from __future__ import annotations

from typing import Any

import keras
from zoo import ROWS, images, zoo

layers, ops = keras.layers, keras.ops
SIDE = 32
MASKS = (images(SIDE).mean(-1, keepdims=True) > 0.5).astype("float32")


def convolved(x: Any, filters: int = 8, dilation: int = 1) -> Any:
    x = layers.Conv2D(filters, 3, padding="same", dilation_rate=dilation, use_bias=False)(x)
    return layers.ReLU()(layers.BatchNormalization()(x))


def residual(x: Any, stride: int = 1) -> Any:
    shortcut = layers.Conv2D(8, 1, strides=stride, use_bias=False)(x)
    x = convolved(layers.Conv2D(8, 3, strides=stride, padding="same")(x))
    return layers.ReLU()(layers.BatchNormalization()(layers.Add()([shortcut, convolved(x)])))


def enlarged(x: Any, factor: int) -> Any:
    return layers.UpSampling2D(factor, interpolation="bilinear")(x)


def mask(x: Any, factor: int, name: str) -> Any:
    return layers.Activation("sigmoid", name=name)(enlarged(layers.Conv2D(1, 3, padding="same")(x), factor))


def predicted(inputs: Any) -> list[Any]:
    """The masks of an encoder of three stages, a bridge, and a decoder, the finest first."""
    stages = [residual(convolved(inputs))]
    for _ in range(2):
        stages.append(residual(stages[-1], stride=2))
    x = convolved(convolved(stages[-1], dilation=2), dilation=2)
    masks = [mask(x, 4, "bridge")]
    for number, stage in enumerate(reversed(stages)):
        x = x if number == 0 else enlarged(x, 2)
        x = convolved(convolved(layers.Concatenate()([x, stage])))
        masks.insert(0, mask(x, 4 // 2**number, f"decoded_{number}"))
    return masks


def refined(coarse: Any) -> Any:
    """The finest mask, and a correction of it from an encoder and a decoder."""
    down = convolved(coarse)
    deep = convolved(layers.MaxPool2D()(down))
    up = convolved(layers.Concatenate()([enlarged(deep, 2), down]))
    return layers.Activation("sigmoid", name="refined")(
        layers.Add()([coarse, layers.Conv2D(1, 3, padding="same")(up)])
    )


class Hybrid(keras.losses.Loss):
    """Binary cross-entropy, the share of what overlaps, and the similarity of neighbourhoods."""

    def call(self, y_true: Any, y_pred: Any) -> Any:
        overlap = ops.sum(y_true * y_pred, axis=(1, 2, 3))
        union = ops.sum(y_true + y_pred, axis=(1, 2, 3)) - overlap
        return self._entropy(y_true, y_pred) + self._unlike(y_true, y_pred) + 1 - (overlap + 1) / (union + 1)

    def _entropy(self, y_true: Any, y_pred: Any) -> Any:
        return ops.mean(keras.losses.binary_crossentropy(y_true, y_pred), axis=(1, 2))

    def _unlike(self, y_true: Any, y_pred: Any) -> Any:
        mean, other = (ops.average_pool(part, 4, 1) for part in (y_true, y_pred))
        spread = ops.average_pool(y_true**2, 4, 1) - mean**2 + ops.average_pool(y_pred**2, 4, 1) - other**2
        shared = ops.average_pool(y_true * y_pred, 4, 1) - mean * other
        alike = (
            (2 * mean * other + 0.01) / (mean**2 + other**2 + 0.01) * (2 * shared + 0.03) / (spread + 0.03)
        )
        return ops.mean(1 - alike, axis=(1, 2, 3))


@zoo(data=(images(SIDE), (MASKS,) * 5), only_virtual=ROWS)
def basnet_of_keras_io():
    inputs = keras.Input((SIDE, SIDE, 3))
    masks = predicted(inputs)
    model = keras.Model(inputs, [refined(masks[0]), *masks])
    model.compile(keras.optimizers.Adam(0.001), [Hybrid()] * len(model.outputs))
    return model
