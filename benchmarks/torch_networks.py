"""The networks of networks.py in PyTorch, in the fastest form that was found.

Their last layer gives logits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import networks
import torch
from torch import nn

#: Weights that only PyTorch has: its LSTM has a second bias, which it adds to the first.
EXTRA_WEIGHTS = {"lstm": 4 * networks.UNITS}
#: Whose convolutions are faster where the channels of a pixel lie side by side.
CHANNELS_LAST = ("resnet",)


def model(name: str) -> nn.Module:
    """The network, which has the weights of the one in Keras.

    Raises:
        ValueError: The number of weights differs.
    """
    made = MODELS[name]()
    count = sum(weights.numel() for weights in made.parameters())
    expected = networks.NETWORKS[name].weights + EXTRA_WEIGHTS.get(name, 0)
    if count != expected:
        raise ValueError(f"{name} has {count} weights in PyTorch, not {expected}.")
    return made.to(memory_format=_layout(name))


def inputs(name: str) -> torch.Tensor:
    """The inputs of an epoch; images as float32, in PyTorch's order of dimensions."""
    x = torch.from_numpy(networks.data(name)[0])
    if x.ndim != 4:
        return x
    # Once: faster than batch by batch.
    return x.permute(0, 3, 1, 2).contiguous(memory_format=_layout(name)).float() / 255


def _layout(name: str) -> torch.memory_format:
    return torch.channels_last if name in CHANNELS_LAST else torch.contiguous_format


def labels(name: str) -> torch.Tensor:
    """The classes of the examples."""
    return torch.from_numpy(networks.data(name)[1])


def optimizer(name: str, model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer of the network, in PyTorch's fused form, which there is for dense gradients only."""
    network = networks.NETWORKS[name]
    made: Any = getattr(torch.optim, network.optimizer)
    sparse = any(isinstance(part, nn.Embedding) and part.sparse for part in model.modules())
    return made(model.parameters(), lr=network.learning_rate, fused=not sparse)


def _cnn(name: str) -> nn.Module:
    dense = networks.DENSE[name]
    return nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(32 * 13 * 13, dense), nn.ReLU(), nn.Linear(dense, networks.CLASSES),
    )  # fmt: skip


class _Block(nn.Module):
    """Two convolutions beside the identity, or beside a convolution that halves the image."""

    def __init__(self, before: int, filters: int) -> None:
        super().__init__()
        strides = 1 if before == filters else 2
        self.first = _convolution(before, filters, 3, strides)
        self.second = _convolution(filters, filters, 3, 1)
        self.shortcut = _convolution(before, filters, 1, strides) if strides > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.second(torch.relu(self.first(x))) + self.shortcut(x))


def _convolution(before: int, filters: int, size: int, strides: int) -> nn.Module:
    convolution = nn.Conv2d(before, filters, size, strides, padding=size // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(filters))


def _resnet() -> nn.Module:
    first = networks.FILTERS[0]
    blocks = []
    for before, filters in zip((first, *networks.FILTERS), networks.FILTERS, strict=False):
        blocks += [_Block(before, filters), _Block(filters, filters)]
    return nn.Sequential(
        _convolution(3, first, 3, 1), nn.ReLU(), *blocks,
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(networks.FILTERS[-1], networks.CLASSES),
    )  # fmt: skip


class _Transformer(nn.Module):
    """PyTorch's own encoder layers, whose attention is one fused operation."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(networks.WORDS, networks.WIDTH)
        self.positions = nn.Parameter(0.05 * torch.randn(networks.TOKENS, networks.WIDTH))
        sizes = (networks.WIDTH, networks.HEADS, networks.HIDDEN)
        layers = [
            nn.TransformerEncoderLayer(*sizes, dropout=0.0, batch_first=True) for _ in range(networks.LAYERS)
        ]
        self.layers = nn.Sequential(*layers)
        self.last = nn.Linear(networks.WIDTH, networks.CLASSES)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x: torch.Tensor = self.layers(self.words(ids) + self.positions)
        return self.last(x.mean(1))


class _Lstm(nn.Module):
    """The last output of an LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(networks.VALUES, networks.UNITS, batch_first=True)
        self.last = nn.Linear(networks.UNITS, networks.CLASSES)

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        _, (state, _) = self.lstm(series)
        return self.last(state[-1])


def _tabular() -> nn.Module:
    width, head = networks.ROW_WIDTH, networks.HEAD
    return nn.Sequential(
        nn.Embedding(networks.ROWS, width, sparse=True), nn.Flatten(),
        nn.Linear(networks.IDS * width, head), nn.ReLU(), nn.Linear(head, networks.CLASSES),
    )  # fmt: skip


def _mlp() -> nn.Module:
    units = networks.MLP_UNITS
    return nn.Sequential(
        nn.Linear(networks.COLUMNS, units), nn.ReLU(), nn.Linear(units, units), nn.ReLU(),
        nn.Linear(units, networks.CLASSES),
    )  # fmt: skip


MODELS: dict[str, Callable[[], nn.Module]] = {
    "seed": lambda: _cnn("seed"),
    "wide": lambda: _cnn("wide"),
    "resnet": _resnet,
    "transformer": _Transformer,
    "lstm": _Lstm,
    "tabular": _tabular,
    "mlp": _mlp,
}
