"""Functions that build networks, right ones and ones with a single planted fault.

``levelbench check networks.py:NAME --is CLAIM``, where the claim is in ``CASES``: ``resnet20`` or ``lenet5-dense``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from levelbench.checks.self_test import Planted
from levelbench.planted.case import cases

inputs = {"images": ("batch", 3, 32, 32)}


def drawn(module: nn.Module) -> nn.Module:
    """Convolutions drawn as He et al. 2015 do, by the fan-out; the last layer is left as PyTorch draws it."""
    for each in module.modules():
        if isinstance(each, nn.Conv2d):
            nn.init.kaiming_normal_(each.weight, mode="fan_out", nonlinearity="relu")
    return module


class Block(nn.Module):
    """Two convolutions and a shortcut of type A."""

    def __init__(self, before: int, width: int, stride: int, **given: Any) -> None:
        super().__init__()
        norm: Callable[[int], nn.Module] = given.get("norm", nn.BatchNorm2d)
        kernel, dilation = given.get("kernel", 3), given.get("dilation", 1)
        first, second = (1, stride) if given.get("stride_second") else (stride, 1)
        self.conv1 = nn.Conv2d(before, width, kernel, first, kernel // 2, bias=given.get("bias", False))
        self.bn1 = norm(width)
        self.conv2 = nn.Conv2d(width, width, 3, second, dilation, dilation=dilation, bias=False)
        self.bn2 = norm(width)
        self.stride, self.extra = stride, width - before
        self.act: Callable[[Tensor], Tensor] = given.get("act", F.relu)
        self.last: Callable[[Tensor], Tensor] = given.get("last", F.relu)
        self.scale, self.pad = given.get("scale", 1.0), given.get("pad", "after")
        self.project = given.get("project", False) and stride > 1
        if self.project:
            self.shortcut = nn.Sequential(nn.Conv2d(before, width, 1, stride, bias=False), norm(width))

    def aside(self, x: Tensor) -> Tensor:
        """The shortcut."""
        if self.project:
            found: Tensor = self.shortcut(x)
            return found
        if self.stride == 1:
            return x
        x = x[:, :, :: self.stride, :: self.stride]
        channels = (0, self.extra) if self.pad == "after" else (self.extra // 2, self.extra - self.extra // 2)
        return F.pad(x, (0, 0, 0, 0, *channels))

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.act(self.bn1(self.conv1(x)))))
        y = y if self.scale == 1.0 else y * self.scale
        return self.last(self.aside(x) + y)


class Residual(nn.Module):
    """A ResNet for CIFAR-10."""

    def __init__(self, count: int = 3, classes: int = 10, width: int = 16, **given: Any) -> None:
        super().__init__()
        norm: Callable[[int], nn.Module] = given.get("norm", nn.BatchNorm2d)
        self.conv1, self.bn1 = nn.Conv2d(3, width, 3, padding=1, bias=False), norm(width)
        blocks, before = [], width
        for stage in range(3):
            for at in range(count):
                now = width * 2**stage
                blocks.append(Block(before, now, 2 if stage and not at else 1, **given))
                before = now
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(before, classes)
        self.finish: Callable[[Tensor], Tensor] = given.get("finish", lambda x: x)
        self.pool: Callable[[Tensor], Tensor] = given.get("pool", lambda x: x.mean((2, 3)))
        drawn(self)

    def forward(self, images: Tensor) -> Tensor:
        return self.finish(self.fc(self.pool(self.blocks(F.relu(self.bn1(self.conv1(images)))))))


def lenet(act: Callable[[], nn.Module] = nn.Tanh, pool: Any = None, widths: tuple[int, int] = (6, 16)) -> nn.Module:
    """LeNet-5 as usually built."""
    pool = pool or (lambda: nn.AvgPool2d(2))
    one, two = widths
    return nn.Sequential(
        nn.Conv2d(1, one, 5), act(), pool(), nn.Conv2d(one, two, 5), act(), pool(), nn.Flatten(),
        nn.Linear(two * 25, 120), act(), nn.Linear(120, 84), act(), nn.Linear(84, 10),
    )  # fmt: skip


# Right ones.


def residual() -> nn.Module:
    """As in the paper."""
    return Residual()


def residual_pooled() -> nn.Module:
    """With PyTorch's pooling instead of a mean."""
    return Residual(pool=lambda x: F.adaptive_avg_pool2d(x, 1).flatten(1))


def residual_modules() -> nn.Module:
    """With modules for the activations."""
    return Residual(act=nn.ReLU(), last=nn.ReLU(inplace=True))


def residual_in_place() -> nn.Module:
    """With ReLU in place, and by another name."""
    return Residual(act=lambda x: F.relu(x, inplace=True), last=torch.relu)


def residual_wrapped() -> nn.Module:
    """In a wrapper that adds nothing."""
    return nn.Sequential(OrderedDict(net=Residual(), same=nn.Identity()))


def residual_channels_last() -> nn.Module:
    """In another memory layout."""
    return Residual().to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def residual_named() -> tuple[nn.Module, dict[str, Any]]:
    """With its inputs stated."""
    return Residual(), inputs


def residual_other_way() -> nn.Module:
    """The classifier as a 1x1 convolution, drawn like a linear layer."""
    net = Residual(pool=lambda x: x.mean((2, 3), keepdim=True), finish=lambda x: x.flatten(1))
    linear = net.fc
    net.fc = nn.Conv2d(64, 10, 1)  # type: ignore[assignment]
    with torch.no_grad():
        net.fc.weight.copy_(linear.weight[:, :, None, None])
        net.fc.bias.copy_(linear.bias)
    return net


def lenet_plain() -> nn.Module:
    """A chain of modules."""
    return lenet()


def lenet_nested() -> nn.Module:
    """Chains within a chain."""
    whole = list(lenet())  # type: ignore[call-overload]
    return nn.Sequential(nn.Sequential(*whole[:6]), nn.Sequential(*whole[6:]))


class _Functions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(1, 6, 5), nn.Conv2d(6, 16, 5)
        self.three, self.four, self.five = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = F.avg_pool2d(torch.tanh(self.one(images)), 2)
        x = F.avg_pool2d(torch.tanh(self.two(x)), 2).flatten(1)
        found: Tensor = self.five(torch.tanh(self.four(torch.tanh(self.three(x)))))
        return found


def lenet_functions() -> nn.Module:
    """With functions instead of modules."""
    return _Functions()


def lenet_explicit() -> nn.Module:
    """With its pooling spelt out, and PyTorch's usual draw made by hand."""
    net = lenet(pool=lambda: nn.AvgPool2d(kernel_size=2, stride=2, padding=0))
    for each in net.modules():
        if isinstance(each, nn.Conv2d | nn.Linear):
            limit = each.weight[0].numel() ** -0.5
            nn.init.uniform_(each.weight, -limit, limit)
            assert each.bias is not None
            nn.init.uniform_(each.bias, -limit, limit)
    return net


# Faults.


def residual_eps() -> nn.Module:
    """The epsilon of the normalisations is 1e-3."""
    return Residual(norm=lambda c: nn.BatchNorm2d(c, eps=1e-3))


def residual_momentum() -> nn.Module:
    """The momentum of the normalisations is 0.01."""
    return Residual(norm=lambda c: nn.BatchNorm2d(c, momentum=0.01))


def residual_projected() -> nn.Module:
    """Shortcuts with a change of shape are projections."""
    return Residual(project=True)


def residual_centred() -> nn.Module:
    """Shortcuts have their zeros on both sides of the channels."""
    return Residual(pad="both")


def residual_late_stride() -> nn.Module:
    """The second convolution of a block has the stride."""
    return Residual(stride_second=True)


def residual_linear_end() -> nn.Module:
    """There is no activation after the addition."""
    return Residual(last=lambda x: x)


def residual_softmax() -> nn.Module:
    """Probabilities come out instead of logits."""
    return Residual(finish=lambda x: F.softmax(x, 1))


def residual_biased() -> nn.Module:
    """The first convolution of each block has a bias."""
    return Residual(bias=True)


def residual_short() -> nn.Module:
    """There are two blocks instead of three in each stage."""
    return Residual(count=2)


def residual_leaky() -> nn.Module:
    """Activations within blocks have a slope of 0.01 below zero."""
    return Residual(act=F.leaky_relu)


def residual_scaled() -> nn.Module:
    """Residual paths are multiplied by 0.5."""
    return Residual(scale=0.5)


def residual_zero() -> nn.Module:
    """The last normalisation of each block begins with a scale of zero."""
    net = Residual()
    for each in net.blocks:
        nn.init.zeros_(each.bn2.weight)  # type: ignore[arg-type,union-attr]
    return net


def residual_frozen() -> nn.Module:
    """The first convolution is not trained."""
    net = Residual()
    net.conv1.weight.requires_grad_(False)
    return net


def residual_max() -> nn.Module:
    """The largest is taken over the image instead of the mean."""
    return Residual(pool=lambda x: x.amax((2, 3)))


def residual_dilated() -> nn.Module:
    """Second convolutions of blocks are dilated."""
    return Residual(dilation=2)


def residual_detached() -> nn.Module:
    """No gradient passes through the activations within blocks."""
    return Residual(act=lambda x: F.relu(x.detach()))


def lenet_relu() -> nn.Module:
    """Activations are ReLU instead of tanh."""
    return lenet(act=nn.ReLU)


def lenet_max() -> nn.Module:
    """Pooling takes the largest instead of the mean."""
    return lenet(pool=lambda: nn.MaxPool2d(2))


def lenet_wide() -> nn.Module:
    """The second convolution has 20 outputs instead of 16."""
    return lenet(widths=(6, 20))


def lenet_shared() -> nn.Module:
    """All weights begin with the same constant."""
    net = lenet()
    for each in net.parameters():
        nn.init.constant_(each, 0.01)
    return net


for _name, _each in list(globals().items()):
    if _name.startswith(("residual", "lenet_")):
        _each.claims = "resnet20" if _name.startswith("residual") else "lenet5-dense"

CASES: dict[str, Planted] = cases(
    seed=505,
    right=(
        residual, residual_pooled, residual_modules, residual_in_place, residual_wrapped, residual_channels_last,
        residual_named, residual_other_way, lenet_plain, lenet_nested, lenet_functions, lenet_explicit,
    ),
    wrong={
        residual_eps: "value attributes",
        residual_momentum: "state attributes",
        residual_projected: "value",
        residual_centred: "value",
        residual_late_stride: "value",
        residual_linear_end: "value",
        residual_softmax: "value",
        residual_biased: "value",
        residual_short: "value",
        residual_leaky: "value",
        residual_scaled: "value",
        residual_zero: "value",
        residual_frozen: "gradient",
        residual_max: "value",
        residual_dilated: "value",
        residual_detached: "gradient",
        lenet_relu: "value",
        lenet_max: "value",
        lenet_wide: "value shape",
        lenet_shared: "value",
    },
)  # fmt: skip
