"""Models of keras-hub for images: classes, boxes, masks, and images again."""

from typing import Any

import keras
import keras_hub
import numpy as np
from zoo import EXAMPLES, OF_BATCH, ROWS, images, labelled_images, rng, zoo

models = keras_hub.models
SIDE = 32
CLASSIFIED = labelled_images(SIDE)


def compiled(model: Any, **arguments: Any) -> Any:
    model.compile(**{"optimizer": keras.optimizers.Adam(0.001)} | arguments)
    return model


def resnet(side: int | None = SIDE, stages: int = 3) -> Any:
    return models.ResNetBackbone(
        input_conv_filters=[64], input_conv_kernel_sizes=[7], stackwise_num_filters=[64, 16, 16, 16][:stages],
        stackwise_num_blocks=[1] * stages, stackwise_num_strides=[1, 2, 2, 2][:stages],
        block_type="basic_block", image_shape=(side, side, 3),
    )  # fmt: skip


@zoo(data=CLASSIFIED, only_virtual=ROWS)
def resnet_classifier():
    return compiled(models.ResNetImageClassifier(resnet(), num_classes=3))


BOXES = {
    "boxes": np.tile(np.array([[8.0, 8, 40, 40], [20, 24, 60, 56]], "float32"), (EXAMPLES, 1, 1)),
    "labels": rng.integers(0, 3, size=(EXAMPLES, 2)).astype("float32"),
}


class Detector(models.RetinaNetObjectDetector):
    def predict_step(self, *args: Any) -> Any:
        # That of keras-hub takes only what its own predict() passes, which is no job of tfdistr.
        return keras.Model.predict_step(self, *args)


@zoo(data=(images(64), BOXES), only_virtual=OF_BATCH)
def retinanet():
    backbone = models.RetinaNetBackbone(resnet(64, stages=4), min_level=3, max_level=4, use_p5=False)
    return compiled(Detector(backbone, num_classes=3, pre_logits_num_conv_layers=1))


MASKS = (images(64).mean(-1, keepdims=True) > 0.5).astype("float32")


@zoo(data=(images(64), keras.utils.to_categorical(MASKS[..., 0], 2)), only_virtual=ROWS)
def segformer():
    encoder = models.MiTBackbone(
        image_shape=(64, 64, 3), num_layers=4, hidden_dims=[8, 16, 24, 32], layerwise_depths=[1] * 4,
        layerwise_num_heads=[1, 1, 2, 2], layerwise_sr_ratios=[8, 4, 2, 1],
        layerwise_patch_sizes=[7, 3, 3, 3], layerwise_strides=[4, 2, 2, 2], max_drop_path_rate=0.1,
    )  # fmt: skip
    backbone = models.SegFormerBackbone(image_encoder=encoder, projection_filters=8)
    return compiled(models.SegFormerImageSegmenter(backbone, num_classes=2), loss="binary_crossentropy")
