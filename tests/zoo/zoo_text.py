"""Transformers of keras-hub for text."""

from typing import Any

import keras
import keras_hub
import numpy as np
from zoo import DRAWS, EXAMPLES, rng, zoo

models = keras_hub.models
WORDS, LENGTH = 30, 8
SIZES = {"vocabulary_size": WORDS, "num_layers": 2, "hidden_dim": 8, "intermediate_dim": 16}
HEADS = SIZES | {"num_heads": 2}
TOKENS = rng.integers(3, WORDS, size=(EXAMPLES, LENGTH))
MASK = np.arange(LENGTH) < rng.integers(2, LENGTH + 1, size=(EXAMPLES, 1))
TEXT = {"token_ids": TOKENS * MASK, "padding_mask": MASK.astype("int32")}
SEGMENTS = TEXT | {"segment_ids": np.zeros_like(TOKENS)}
LABELS = np.arange(EXAMPLES) % 2
NEXT = np.roll(TOKENS, -1, axis=1)
#: What follows each token of a text; padding has no weight.
CONTINUED = (TEXT, NEXT, MASK.astype("float32"))


def compiled(model: Any, **arguments: Any) -> Any:
    model.compile(optimizer=keras.optimizers.Adam(0.01), **arguments)
    return model


def classifier(kind: str, **sizes: Any) -> Any:
    backbone = getattr(models, f"{kind}Backbone")(**sizes)
    return compiled(getattr(models, f"{kind}TextClassifier")(backbone, num_classes=2))


def causal_lm(kind: str, **sizes: Any) -> Any:
    backbone = getattr(models, f"{kind}Backbone")(**sizes)
    return compiled(getattr(models, f"{kind}CausalLM")(backbone))


@zoo(data=(SEGMENTS, LABELS), only_virtual=DRAWS)
def bert_classifier():
    return classifier("Bert", **HEADS, max_sequence_length=LENGTH)


@zoo(data=CONTINUED, only_virtual=DRAWS)
def gpt2_causal_lm():
    return causal_lm("GPT2", **HEADS, max_sequence_length=LENGTH)


BOTH = {f"{part}_{name}": value for part in ("encoder", "decoder") for name, value in TEXT.items()}


@zoo(data=(BOTH, NEXT, MASK.astype("float32")), only_virtual=DRAWS)
def bart_seq_2_seq_lm():
    return compiled(models.BartSeq2SeqLM(models.BartBackbone(**HEADS, max_sequence_length=LENGTH)))
