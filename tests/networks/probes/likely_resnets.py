"""A residual network of PyTorch in many variants: the reference's, and one difference each."""

import math

import torch
from torch import nn
from torch.nn import functional

BLOCKS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}


def he(module, mode="fan_out"):
    """Draw convolutions as in torchvision."""
    for each in module.modules():
        if isinstance(each, nn.Conv2d):
            nn.init.kaiming_normal_(each.weight, mode=mode, nonlinearity="relu")


class Block(nn.Module):
    """A basic block or a bottleneck, with the same names as torchvision's."""

    def __init__(self, inputs, width, stride, o):
        super().__init__()
        self.o = o
        made = width * (4 if o.depth >= 50 else 1)
        bias = o.bias

        def conv(a, b, kernel, step=1, groups=1):
            return nn.Conv2d(
                a,
                b,
                kernel,
                step,
                o.padding if kernel == 3 else 0,
                groups=groups,
                bias=bias,
                padding_mode=o.padding_mode,
            )

        inner = int(width * o.widening)
        if o.depth >= 50:
            first, second, third = {"1": (stride, 1, 1), "1.5": (1, stride, 1), "last": (1, 1, stride)}[o.version]
            self.convs = nn.ModuleList(
                [
                    conv(inputs, inner, 1, first),
                    conv(inner, inner, 3, second, groups=o.groups),
                    conv(inner, made, 1, third),
                ]
            )
        else:
            first, second = (1, stride) if o.version == "last" else (stride, 1)
            self.convs = nn.ModuleList([conv(inputs, inner, 3, first), conv(inner, made, 3, second)])
        widths = [inputs, *(each.out_channels for each in self.convs)]
        self.norms = nn.ModuleList([o.norm(each) for each in (widths[:-1] if o.pre else widths[1:])])
        self.shortcut = None
        if stride > 1 or inputs != made or o.shortcut == "C":
            if o.shortcut == "A":
                self.shortcut = lambda x: functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, made - inputs))
            elif o.shortcut == "D" and stride > 1:
                self.shortcut = nn.Sequential(nn.AvgPool2d(2, 2), nn.Conv2d(inputs, made, 1, bias=False), o.norm(made))
            elif o.shortcut == "bare":
                self.shortcut = nn.Conv2d(inputs, made, 1, stride, bias=False)
            else:
                self.shortcut = nn.Sequential(nn.Conv2d(inputs, made, 1, stride, bias=False), o.norm(made))
        self.act = o.act()
        self.se = None
        if o.se:
            self.se = nn.Sequential(
                nn.AdaptiveAvgPool2d(1),
                nn.Conv2d(made, made // 4, 1),
                nn.ReLU(),
                nn.Conv2d(made // 4, made, 1),
                nn.Sigmoid(),
            )

    def path(self, y):
        """The path that is not the shortcut."""
        o = self.o
        for at, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            last = at == len(self.convs) - 1
            if o.pre:
                y = conv(self.act(norm(y)))
            elif o.act_before_norm:
                y = norm(conv(y)) if last else norm(self.act(conv(y)))
            elif o.skip_norm and at == 0:
                y = self.act(conv(y))
            else:
                y = norm(conv(y))
                y = y if last and not o.act_before_add else self.act(y)
            if o.dropout and at == 0:
                y = functional.dropout(y, o.dropout, self.training)
        return y if self.se is None else y * self.se(y)

    def forward(self, x, activated=True):
        o, y = self.o, self.path(x)
        short = x if self.shortcut is None else self.shortcut(x)
        if o.detach:
            short = short.detach()
        if o.no_shortcut and self.shortcut is None:
            return self.act(y)
        if o.subtract:
            return self.act(y - short)
        y = o.scale * y + short if o.scale != 1 else y + short
        return y if o.pre or o.act_before_add or o.no_last_act or not activated else self.act(y)


class Options:
    """The settings of the reference; each may be changed."""

    def __init__(self, **changes):
        known = {
            "depth": 18,
            "version": "1.5",
            "classes": 10,
            "width": 8,
            "act": lambda: nn.ReLU(inplace=True),
            "norm": nn.BatchNorm2d,
            "bias": False,
            "padding": 1,
            "padding_mode": "zeros",
            "groups": 1,
            "widening": 1,
            "pre": False,
            "shortcut": "B",
            "act_before_norm": False,
            "act_before_add": False,
            "no_last_act": False,
            "skip_norm": False,
            "dropout": 0.0,
            "head_dropout": 0.0,
            "scale": 1.0,
            "se": False,
            "detach": False,
            "no_shortcut": False,
            "subtract": False,
            "stem": (7, 2, 3),
            "stem_bias": False,
            "pool": lambda: nn.MaxPool2d(3, 2, 1),
            "head_pool": lambda: nn.AdaptiveAvgPool2d(1),
            "head_bias": True,
            "softmax": False,
            "blocks": None,
            "init": he,
            "zero_last": False,
            "head_init": None,
            "scaled_input": False,
        }
        assert not set(changes) - set(known)
        vars(self).update({**known, **changes})


class ResNet(nn.Module):
    """``zoo.build("resnetN", size=32, ...)``, unless ``changes`` make it another network."""

    def __init__(self, **changes):
        super().__init__()
        o = self.o = Options(**changes)
        kernel, stride, padding = o.stem
        self.stem = nn.Conv2d(3, o.width, kernel, stride, padding, bias=o.stem_bias)
        self.norm = None if o.pre == "all" else o.norm(o.width)
        self.act, self.pool = o.act(), o.pool()
        blocks, inputs = [], o.width
        for stage, count in enumerate(o.blocks or BLOCKS[o.depth]):
            for at in range(count):
                width = o.width * 2**stage
                blocks.append(Block(inputs, width, 2 if stage and not at else 1, o))
                inputs = width * (4 if o.depth >= 50 else 1)
        self.blocks = nn.ModuleList(blocks)
        self.last = nn.Sequential(o.norm(inputs), o.act()) if o.pre else nn.Identity()
        self.head_pool = o.head_pool()
        self.head = nn.Linear(inputs, o.classes, bias=o.head_bias)
        if o.init is not None:
            o.init(self)
        if o.zero_last:
            for each in blocks:
                nn.init.zeros_(each.norms[-1].weight)
        if o.head_init is not None:
            o.head_init(self.head)

    def forward(self, x):
        if self.o.scaled_input:
            x = (x - 0.5) / 0.25
        x = self.stem(x)
        x = self.pool(x if self.norm is None else self.act(self.norm(x)))
        return self.rest(x, 0)

    def rest(self, x, first):
        """From the block ``first`` on."""
        for block in self.blocks[first:]:
            x = block(x)
        x = torch.flatten(self.head_pool(self.last(x)), 1)
        x = self.head(functional.dropout(x, self.o.head_dropout, self.training))
        return functional.log_softmax(x, 1) if self.o.softmax else x


def batch_norm(**settings):
    """A maker of normalisations with other settings."""
    return lambda channels: nn.BatchNorm2d(channels, **settings)


class Cifar(nn.Module):
    """He et al.'s network for CIFAR-10 with parameter-free shortcuts, in nn.Sequential and functions."""

    def __init__(self, depth=20, option="A", classes=10):
        super().__init__()
        self.n, self.option = (depth - 2) // 6, option
        layers, inputs = [nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())], 16
        shortcuts = []
        for stage in range(3):
            for at in range(self.n):
                made, stride = 16 * 2**stage, 2 if stage and not at else 1
                layers.append(
                    nn.Sequential(
                        nn.Conv2d(inputs, made, 3, stride, 1, bias=False),
                        nn.BatchNorm2d(made),
                        nn.ReLU(),
                        nn.Conv2d(made, made, 3, 1, 1, bias=False),
                        nn.BatchNorm2d(made),
                    )
                )
                projected = nn.Sequential(nn.Conv2d(inputs, made, 1, stride, bias=False), nn.BatchNorm2d(made))
                shortcuts.append(projected if inputs != made and option == "B" else nn.Identity())
                inputs = made
        self.layers, self.shortcuts, self.fc = nn.Sequential(*layers), nn.ModuleList(shortcuts), nn.Linear(64, classes)
        he(self)

    def forward(self, x):
        x = self.layers[0](x)
        for layer, shortcut in zip(self.layers[1:], self.shortcuts, strict=True):
            # The shortcut first, unlike in the reference.
            short, y = shortcut(x), layer(x)
            if short.shape != y.shape:
                added = torch.zeros_like(short[:, :, ::2, ::2])
                short = torch.cat([nn.functional.max_pool2d(short, 1, 2), added], 1)
            x = torch.relu(short.add(y))
        return x.mean(dim=(-2, -1)) @ self.fc.weight.t() + self.fc.bias


class Functional(nn.Module):
    """ResNet-18 in functions of a flat list of parameters, without modules for layers."""

    def __init__(self, width=8, classes=10):
        super().__init__()
        self.weights, self.scales, self.shifts = nn.ParameterList(), nn.ParameterList(), nn.ParameterList()
        self.plan, inputs = [], width
        self._add(3, width, 7)
        for stage, count in enumerate(BLOCKS[18]):
            for at in range(count):
                made, stride = width * 2**stage, 2 if stage and not at else 1
                self.plan.append((stride, inputs != made))
                self._add(inputs, made, 3)
                self._add(made, made, 3)
                if inputs != made:
                    self._add(inputs, made, 1)
                inputs = made
        self.head = nn.Parameter(torch.empty(inputs, classes).uniform_(-1, 1) / math.sqrt(inputs))
        self.offset = nn.Parameter(torch.empty(classes).uniform_(-1, 1) / math.sqrt(inputs))

    def _add(self, inputs, outputs, kernel):
        std = math.sqrt(2 / (outputs * kernel**2))
        self.weights.append(nn.Parameter(torch.randn(outputs, inputs, kernel, kernel) * std))
        self.scales.append(nn.Parameter(torch.ones(outputs)))
        self.shifts.append(nn.Parameter(torch.zeros(outputs)))
        at = len(self.weights) - 1
        self.register_buffer(f"mean{at}", torch.zeros(outputs))
        self.register_buffer(f"variance{at}", torch.ones(outputs))

    def _normed(self, x, at, stride, padding):
        if padding:
            x, padding = functional.pad(x, (padding,) * 4), 0
        x = functional.conv2d(x, self.weights[at], stride=stride)
        mean, variance = getattr(self, f"mean{at}"), getattr(self, f"variance{at}")
        return functional.batch_norm(x, mean, variance, self.scales[at], self.shifts[at], self.training, 0.1, 1e-5)

    def forward(self, x):
        # Maximum and ReLU commute.
        x, at = functional.max_pool2d(self._normed(x, 0, 2, 3), 3, 2, 1).clamp(min=0), 1
        for stride, projected in self.plan:
            y = functional.relu_(self._normed(x, at, stride, 1))
            y = self._normed(y, at + 1, 1, 1)
            short = self._normed(x, at + 2, stride, 0) if projected else x
            at += 3 if projected else 2
            y += short
            x = functional.hardtanh(y, 0.0, float("inf"))
        x = functional.avg_pool2d(x, x.shape[-1]).reshape(x.shape[0], -1)
        return torch.addmm(self.offset, x, self.head)
