"""The benchmark's networks written by hand in PyTorch: modules with the zoo's parameters, in the zoo's order.

A module takes the executor's own tensors as its parameters, so both sides work on the same memory, for
two copies of a network differ by where their arrays lie. Nothing is in place but what the zoo's network has in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["MODULES", "inference", "step"]


class Mlp(nn.Module):
    """One hidden layer with ReLU."""

    def __init__(self, inputs: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.hidden, self.head = nn.Linear(inputs, hidden), nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.head(torch.relu(self.hidden(x)))


class Cnn(nn.Module):
    """Two 3x3 convolutions, each with ReLU and 2x2 max pooling, and two layers, for images of 28x28."""

    def __init__(self, channels: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, 2 * channels, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.hidden, self.head = nn.Linear(2 * channels * 7 * 7, hidden), nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = self.pool(torch.relu(self.conv1(x)))
        x = self.pool(torch.relu(self.conv2(x)))
        return self.head(torch.relu(self.hidden(torch.flatten(x, 1))))


class Block(nn.Module):
    """Two 3x3 convolutions with batch normalisation, and a shortcut (He et al. 2015, figure 2)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            convolution = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = nn.Sequential(convolution, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """The block's output, after the last ReLU."""
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nn.Module):
    """Four stages of two blocks with 64 to 512 channels (He et al. 2015, table 1)."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = nn.Sequential(Block(64, 64, 1), Block(64, 64, 1))
        self.layer2 = nn.Sequential(Block(64, 128, 2), Block(128, 128, 1))
        self.layer3 = nn.Sequential(Block(128, 256, 2), Block(256, 256, 1))
        self.layer4 = nn.Sequential(Block(256, 512, 2), Block(512, 512, 1))
        self.fc = nn.Linear(512, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = self.pool(torch.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(functional.adaptive_avg_pool2d(x, 1), 1))


MODULES: Mapping[str, Callable[[], nn.Module]] = {
    "mlp": lambda: Mlp(64, 128, 10),
    "cnn": lambda: Cnn(16, 64, 10),
    "resnet18": ResNet18,
}


def _module(name: str, arrays: Mapping[str, Tensor]) -> nn.Module:
    """The module on ``arrays``, by name where the zoo has the same names, else in the zoo's order."""
    module = MODULES[name]()
    own = {key: each for key, each in module.state_dict(keep_vars=True).items() if "num_batches" not in key}
    order = own if own.keys() == arrays.keys() else arrays
    for (key, each), theirs in zip(own.items(), order, strict=True):
        array = arrays[theirs]
        if each.shape != array.shape:
            raise SystemExit(f"{name}: {key} of the hand-written module is not {theirs} of the zoo's network")
        each.data = array
    return module


def inference(name: str, arrays: Mapping[str, Tensor], inputs: Sequence[Tensor]) -> Callable[[], Any]:
    """Logits under ``inference_mode``."""
    module = _module(name, arrays).eval()
    (x,) = inputs

    @torch.inference_mode()
    def call() -> Tensor:
        return module(x)

    return call


def step(name: str, arrays: Mapping[str, Tensor], inputs: Sequence[Tensor]) -> Callable[[], Any]:
    """Loss and gradients: what a training loop does before the optimizer."""
    module, loss = _module(name, arrays).train(), nn.CrossEntropyLoss()
    x, labels = inputs
    named = dict(module.named_parameters())
    parameters = [named[key] for key in arrays if key in named] or list(named.values())

    def call() -> tuple[Tensor, list[Tensor | None]]:
        module.zero_grad(set_to_none=True)
        found = loss(module(x), labels)
        found.backward()
        return found.detach(), [each.grad for each in parameters]

    return call
