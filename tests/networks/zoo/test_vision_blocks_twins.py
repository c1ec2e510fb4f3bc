"""Vision networks with residual or dense blocks equal independent implementations in PyTorch, in float64."""

import pytest
from tests.networks.zoo.vision_twins import assert_twins

from levelbench.networks import zoo

torch = pytest.importorskip("torch")
F = torch.nn.functional


BLOCKS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}


def residual(t, x, name, stride, bottleneck, strided):
    y = x
    for at, padding in enumerate((0, 1, 0) if bottleneck else (1, 1), start=1):
        y = t.conv(f"{name}.conv{at}", y, padding=padding, stride=stride if at == strided else 1)
        y = t.norm(f"{name}.bn{at}", y)
        y = F.relu(y) if at < 2 + bottleneck else y
    if f"{name}.downsample.0.weight" in t.p:
        x = t.norm(f"{name}.downsample.1", t.conv(f"{name}.downsample.0", x, stride=stride))
    return F.relu(x + y)


@pytest.mark.parametrize(("name", "strided"), [("resnet18", 1), ("resnet50", 2), ("resnet50-v1", 1)])
def test_a_resnet_equals_its_twin_with_the_strides_of_its_version(name, strided):
    depth = int(name[6:8])

    def forward(t, x):
        x = F.max_pool2d(F.relu(t.norm("bn1", t.conv("conv1", x, stride=2, padding=3))), 3, 2, padding=1)
        for stage, blocks in enumerate(BLOCKS[depth], start=1):
            for at in range(blocks):
                stride = 2 if stage > 1 and at == 0 else 1
                x = residual(t, x, f"layer{stage}.{at}", stride, depth >= 50, strided)
        return t.linear("fc", x.mean((2, 3)))

    assert_twins(zoo.build(name, size=64, classes=5, width=8), forward)


@pytest.mark.parametrize("name", ["preresnet18", "preresnet50"])
def test_a_preactivation_resnet_equals_its_twin_and_activates_once_before_each_convolution(name):
    def forward(t, x):
        x = F.max_pool2d(F.relu(t.norm("bn1", t.conv("conv1", x, stride=2, padding=3))), 3, 2, padding=1)
        for stage, blocks in enumerate(BLOCKS[int(name[9:])], start=1):
            for at in range(blocks):
                block, stride = f"layer{stage}.{at}", 2 if stage > 1 and at == 0 else 1
                y = activated = x if (stage, at) == (1, 0) else F.relu(t.norm(f"{block}.bn1", x))
                kernels = (1, 3, 1) if name == "preresnet50" else (3, 3)
                for place, kernel in enumerate(kernels, start=1):
                    if place > 1:
                        y = F.relu(t.norm(f"{block}.bn{place}", y))
                    strided = stride if place == len(kernels) - 1 else 1
                    y = t.conv(f"{block}.conv{place}", y, padding=kernel // 2, stride=strided)
                if f"{block}.shortcut.weight" in t.p:
                    x = t.conv(f"{block}.shortcut", activated, stride=stride)
                x = x + y
        return t.linear("fc", F.relu(t.norm("norm", x)).mean((2, 3)))

    assert_twins(zoo.build(name, size=64, classes=5, width=8), forward)


def test_a_cifar_resnet_equals_its_twin_and_its_shortcuts_skip_pixels_and_add_zeros():
    def forward(t, x):
        x = F.relu(t.norm("bn1", t.conv("conv1", x, padding=1)))
        for stage in range(1, 4):
            for at in range(3):
                name, stride = f"layer{stage}.{at}", 2 if stage > 1 and at == 0 else 1
                y = F.relu(t.norm(f"{name}.bn1", t.conv(f"{name}.conv1", x, padding=1, stride=stride)))
                y = t.norm(f"{name}.bn2", t.conv(f"{name}.conv2", y, padding=1))
                if stride == 2:
                    x = torch.cat([x[:, :, ::2, ::2], torch.zeros_like(x[:, :, ::2, ::2])], 1)
                x = F.relu(x + y)
        return t.linear("fc", x.mean((2, 3)))

    assert_twins(zoo.build("resnet20", size=16), forward)


def test_a_wide_resnet_equals_its_twin():
    def forward(t, x):
        x = t.conv("conv1", x, padding=1)
        for stage in range(1, 4):
            name = f"layer{stage}.0"
            y = F.relu(t.norm(f"{name}.bn1", x))
            x = t.conv(f"{name}.shortcut", y, stride=1 if stage == 1 else 2)
            y = t.conv(f"{name}.conv1", y, padding=1, stride=1 if stage == 1 else 2)
            x = x + t.conv(f"{name}.conv2", F.relu(t.norm(f"{name}.bn2", y)), padding=1)
        return t.linear("fc", F.relu(t.norm("norm", x)).mean((2, 3)))

    assert_twins(zoo.build("wideresnet28-10", depth=10, widening=2, size=16), forward)


def test_a_densenet_equals_its_twin():
    def forward(t, x):
        x = F.max_pool2d(F.relu(t.norm("norm0", t.conv("conv0", x, stride=2, padding=3))), 3, 2, padding=1)
        for block in (1, 2):
            seen = [x]
            for layer in (1, 2, 3):
                name = f"block{block}.layer{layer}"
                y = t.conv(f"{name}.conv1", F.relu(t.norm(f"{name}.norm1", torch.cat(seen, 1))))
                seen.append(t.conv(f"{name}.conv2", F.relu(t.norm(f"{name}.norm2", y)), padding=1))
            x = torch.cat(seen, 1)
            if block == 1:
                name = "transition1"
                x = F.avg_pool2d(t.conv(f"{name}.conv", F.relu(t.norm(f"{name}.norm", x))), 2)
        return t.linear("classifier", F.relu(t.norm("norm5", x)).mean((2, 3)))

    assert_twins(zoo.build("densenet121", blocks=(3, 3), growth=4, size=32, classes=5), forward)


def test_mobilenetv2_equals_its_twin():
    # Each block by the paper's table 2: expansion, channels in, channels out, stride.
    rows = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))

    def forward(t, x):
        x = F.relu6(t.norm("norm0", t.conv("conv0", x, stride=2, padding=1)))
        at = 0
        for expansion, channels, repetitions, first in rows:
            for stride in [first] + [1] * (repetitions - 1):
                at += 1
                name, y = f"block{at}", x
                if expansion > 1:
                    y = F.relu6(t.norm(f"{name}.expand_norm", t.conv(f"{name}.expand", y)))
                wide = expansion * x.shape[1]
                y = t.conv(f"{name}.depthwise", y, stride=stride, padding=1, groups=wide)
                y = t.conv(f"{name}.project", F.relu6(t.norm(f"{name}.depthwise_norm", y)))
                y = t.norm(f"{name}.project_norm", y)
                assert y.shape[1] == channels
                x = x + y if x.shape == y.shape else y
        x = F.relu6(t.norm("norm1", t.conv("conv1", x))).mean((2, 3))
        return t.linear("classifier", x)

    assert_twins(zoo.build("mobilenetv2", size=33, classes=5, dropout=0.0), forward)
