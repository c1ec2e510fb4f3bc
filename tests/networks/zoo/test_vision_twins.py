"""Vision networks equal independent implementations in PyTorch, in float64: outputs, gradients, running means."""

import numpy as np
import pytest

from levelbench.networks import zoo
from levelbench.operators.frameworks import open_framework

torch = pytest.importorskip("torch")
F = torch.nn.functional

# Attributes and constants of a network are float32: an epsilon of 1e-5 is one of 9.9999997e-6.
RELATIVE = 1e-6


def shaken(network, seed=0, scale=0.1):
    """Parameters away from where training starts, where biases of zero and scales of one would hide a mistake."""
    generator = np.random.default_rng(seed)
    return {
        name: np.abs(noisy) + 0.1 if name.endswith("running_var") else noisy
        for name, array in network.initialise(seed).items()
        for noisy in [array.astype(np.float64) + scale * generator.standard_normal(array.shape)]
    }


def inputs_of(network, batch):
    made = network.make_inputs(batch, seed=1).values()
    return [each.astype(np.float64) if each.dtype == np.float32 else each for each in made]


def assert_close(ours, theirs, floor=0.0):
    theirs = theirs.detach().numpy()
    assert ours.shape == theirs.shape
    assert ours.dtype == np.float64
    assert np.abs(ours - theirs).max() <= max(RELATIVE * np.abs(theirs).max(), floor)


class Twin:
    """Layers by name on a network's own parameters."""

    def __init__(self, parameters):
        self.p = {name: torch.tensor(array, requires_grad="running" not in name) for name, array in parameters.items()}
        self.training = False

    def conv(self, name, x, **options):
        return F.conv2d(x, self.p[f"{name}.weight"], self.p.get(f"{name}.bias"), **options)

    def linear(self, name, x):
        return F.linear(x, self.p[f"{name}.weight"], self.p[f"{name}.bias"])

    def norm(self, name, x):
        mean, variance = self.p[f"{name}.running_mean"], self.p[f"{name}.running_var"]
        return F.batch_norm(x, mean, variance, self.p[f"{name}.weight"], self.p[f"{name}.bias"], self.training, 0.1)


def assert_twins(network, forward, *, batch=3):
    """``forward(twin, x)`` gives the network's output, and the gradients and running means of a training step."""
    parameters = shaken(network)
    twin = Twin(parameters)
    (x,) = inputs_of(network, batch)
    backend = open_framework("numpy")
    assert_close(backend.executor(network, parameters).infer(x)[0], forward(twin, torch.tensor(x)))
    trained = network.with_loss().training()
    x, labels = inputs_of(trained, batch)
    executor = backend.executor(trained, parameters)
    loss, gradients = executor.infer_and_backprop(x, labels)
    twin.training = True
    wanted = F.cross_entropy(forward(twin, torch.tensor(x)), torch.tensor(labels))
    assert float(loss) == pytest.approx(wanted.item(), rel=RELATIVE)
    wanted.backward()
    leaves = {name: leaf for name, leaf in twin.p.items() if leaf.requires_grad}
    # The gradient of what a normalisation of the batch follows can be zero but for rounding.
    floor = 1e-12 * max(float(leaf.grad.abs().max()) for leaf in leaves.values())
    assert set(gradients) == set(leaves)
    for name, leaf in leaves.items():
        assert_close(gradients[name], leaf.grad, floor)
    for name, mean in twin.p.items():
        if name.endswith("running_mean"):
            assert_close(executor.buffers[name], mean)


# Table I of the paper: which maps of S2 each map of C3 sees.
TABLE = (
    "X...XXX..XXXX.XX",
    "XX...XXX..XXXX.X",
    "XXX...XXX..X.XXX",
    ".XXX..XXXX..X.XX",
    "..XXX..XXXX.XX.X",
    "...XXX..XXXX.XXX",
)


def test_lenet5_connects_its_maps_by_the_papers_table():
    seen = [[at for at, row in enumerate(TABLE) if row[column] == "X"] for column in range(16)]
    # A map's weights begin with the first of its neighbours, which is not the lowest where they wrap around.
    first = [*range(6), *range(6), *range(3), 0]
    seen = [sorted(maps, key=lambda at, start=start: (at - start) % 6) for maps, start in zip(seen, first, strict=True)]
    assert [maps[0] for maps in seen] == first

    def squash(x):
        return 1.7159 * torch.tanh(2 / 3 * x)

    def subsample(t, name, x):
        return squash(4 * F.avg_pool2d(x, 2) * t.p[f"{name}.weight"] + t.p[f"{name}.bias"])

    def forward(t, x):
        weights = [each for part in range(4) for each in t.p[f"c3.{part}.weight"]]
        biases = torch.cat([t.p[f"c3.{part}.bias"] for part in range(4)])
        dense = torch.zeros(16, 6, 5, 5, dtype=torch.float64)
        for column, (maps, weight) in enumerate(zip(seen, weights, strict=True)):
            dense[column, maps] = weight
        x = subsample(t, "s2", squash(t.conv("c1", x)))
        x = subsample(t, "s4", squash(F.conv2d(x, dense, biases)))
        x = squash(t.conv("c5", x)).flatten(1)
        return t.linear("output", squash(t.linear("f6", x)))

    assert_twins(zoo.build("lenet5"), forward)


def test_the_dense_lenet5_equals_its_twin():
    def forward(t, x):
        for at in (1, 2):
            x = F.avg_pool2d(torch.tanh(t.conv(f"conv{at}", x)), 2)
        x = x.flatten(1)
        for at in (1, 2):
            x = torch.tanh(t.linear(f"fc{at}", x))
        return t.linear("fc3", x)

    assert_twins(zoo.build("lenet5-dense"), forward)


def alexnet_norm(x):
    """Section 3.3 of the paper: k = 2, n = 5, alpha = 1e-4 of the sum, beta = 0.75."""
    squares = F.pad(x**2, (0, 0, 0, 0, 2, 2))
    total = sum(squares[:, at : at + x.shape[1]] for at in range(5))
    return x / (2 + 1e-4 * total) ** 0.75


def test_alexnet_equals_a_twin_with_the_papers_normalisation():
    def forward(t, x):
        x = F.max_pool2d(alexnet_norm(F.relu(t.conv("conv1", x, stride=4))), 3, 2)
        x = F.max_pool2d(alexnet_norm(F.relu(t.conv("conv2", x, padding=2, groups=2))), 3, 2)
        x = F.relu(t.conv("conv3", x, padding=1))
        x = F.relu(t.conv("conv4", x, padding=1, groups=2))
        x = F.max_pool2d(F.relu(t.conv("conv5", x, padding=1, groups=2)), 3, 2).flatten(1)
        return t.linear("fc8", F.relu(t.linear("fc7", F.relu(t.linear("fc6", x)))))

    assert_twins(zoo.build("alexnet", size=67, width=5, classes=4, dropout=0.0), forward, batch=2)


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
def test_a_resnet_equals_its_twin_with_the_strides_where_its_version_has_them(name, strided):
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
    # Of each block by the paper's table 2: expansion, channels in, channels out, stride.
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


def test_squeezenet_equals_its_twin():
    def forward(t, x):
        x = F.max_pool2d(F.relu(t.conv("conv1", x, stride=2)), 3, 2, ceil_mode=True)
        for at in range(2, 10):
            x = F.relu(t.conv(f"fire{at}.squeeze", x))
            one, three = t.conv(f"fire{at}.expand1x1", x), t.conv(f"fire{at}.expand3x3", x, padding=1)
            x = F.relu(torch.cat([one, three], 1))
            x = F.max_pool2d(x, 3, 2, ceil_mode=True) if at in (4, 8) else x
        return F.relu(t.conv("conv10", x)).mean((2, 3))

    assert_twins(zoo.build("squeezenet", size=64, classes=5, dropout=0.0), forward)


def test_inception_v1_equals_its_twin():
    def norm(x):
        return F.local_response_norm(x, 5, alpha=1e-4, beta=0.75, k=1.0)

    def forward(t, x):
        x = norm(F.max_pool2d(F.relu(t.conv("conv1", x, stride=2, padding=3)), 3, 2, ceil_mode=True))
        x = norm(F.relu(t.conv("conv2", F.relu(t.conv("conv2_reduce", x)), padding=1)))
        x = F.max_pool2d(x, 3, 2, ceil_mode=True)
        for name in ("3a", "3b", "4a", "4b", "4c", "4d", "4e", "5a", "5b"):
            three, five = (F.relu(t.conv(f"{name}.{k}_reduce", x)) for k in ("3x3", "5x5"))
            pooled = F.max_pool2d(x, 3, 1, padding=1)
            parts = [t.conv(f"{name}.1x1", x), t.conv(f"{name}.3x3", three, padding=1)]
            parts += [t.conv(f"{name}.5x5", five, padding=2), t.conv(f"{name}.pool_proj", pooled)]
            x = F.relu(torch.cat(parts, 1))
            x = F.max_pool2d(x, 3, 2, ceil_mode=True) if name in ("3b", "4e") else x
        return t.linear("classifier", x.mean((2, 3)))

    assert_twins(zoo.build("inceptionv1", size=33, classes=5, dropout=0.0), forward, batch=2)


def test_the_unet_equals_its_twin_and_crops_in_the_middle():
    def forward(t, x):
        def twice(name, x):
            return F.relu(t.conv(f"{name}.2", F.relu(t.conv(f"{name}.1", x))))

        first = twice("down0", x)
        second = twice("down1", F.max_pool2d(first, 2))
        x = twice("down2", F.max_pool2d(second, 2))
        for level, across in ((1, second), (0, first)):
            name = f"up{level}"
            x = F.conv_transpose2d(x, t.p[f"{name}.conv.weight"], t.p[f"{name}.conv.bias"], stride=2)
            away = (across.shape[2] - x.shape[2]) // 2
            across = across[:, :, away:-away, away:-away]
            x = twice(name, torch.cat([across, x], 1))
        return t.conv("classifier", x)

    assert_twins(zoo.build("unet-tiny", dropout=0.0), forward, batch=2)


def encoder_layer(p, name, width, heads):
    """PyTorch's own layer with our weights: queries, keys and values are one matrix there."""
    module = torch.nn.TransformerEncoderLayer(
        width, heads, 4 * width, 0.0, "gelu", 1e-6, batch_first=True, norm_first=True, dtype=torch.float64
    )
    attention = f"{name}.attention"
    packed = {
        what: torch.cat([p[f"{attention}.{part}.{what}"] for part in ("query", "key", "value")])
        for what in ("weight", "bias")
    }
    names = {"norm1": "norm1", "norm2": "norm2", "linear1": "mlp1", "linear2": "mlp2"}
    given = {f"{a}.{what}": p[f"{name}.{b}.{what}"] for a, b in names.items() for what in ("weight", "bias")}
    given |= {f"self_attn.in_proj_{what}": each for what, each in packed.items()}
    given |= {f"self_attn.out_proj.{what}": p[f"{attention}.output.{what}"] for what in ("weight", "bias")}
    return lambda x: torch.func.functional_call(module, given, (x,))


def test_a_vision_transformer_equals_pytorchs_encoder():
    def forward(t, x):
        x = t.conv("patches", x, stride=16).flatten(2).transpose(1, 2)
        x = torch.cat([t.p["class_token"].expand(len(x), 1, 12), x], 1) + t.p["positions"]
        for layer in range(2):
            x = encoder_layer(t.p, f"layer{layer}", 12, 3)(x)
        x = F.layer_norm(x, (12,), t.p["norm.weight"], t.p["norm.bias"], 1e-6)
        return t.linear("head", x[:, 0])

    assert_twins(zoo.build("vit-tiny", layers=2, width=12, heads=3, size=48, classes=5), forward)


def test_ssd300_equals_its_twin_box_by_box():
    network = zoo.build("ssd300", classes=3)
    parameters = network.initialise(0)
    (x,) = network.make_inputs(1, seed=1).values()
    t = Twin(parameters)
    with torch.no_grad():
        wanted = ssd_twin(t, torch.tensor(x))
    backend = open_framework("torch")
    found = backend.executor(network, parameters, trains=False).infer(backend.array(x))
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.shape == theirs.shape
        assert float((ours - theirs).abs().max()) <= 1e-4 * float(theirs.abs().max())


def ssd_twin(t, x):
    """Section 2.1 and the appendix of the paper, and torchvision's order: rows, columns, boxes of a pixel."""
    for stage, convolutions in enumerate((2, 2, 3, 3), start=1):
        x = F.max_pool2d(x, 2, ceil_mode=stage == 4) if stage > 1 else x
        for at in range(1, convolutions + 1):
            x = F.relu(t.conv(f"conv{stage}_{at}", x, padding=1))
    images = [F.normalize(x) * t.p["norm4_3.weight"]]
    x = F.max_pool2d(x, 2)
    for at in range(1, 4):
        x = F.relu(t.conv(f"conv5_{at}", x, padding=1))
    x = F.relu(t.conv("conv6", F.max_pool2d(x, 3, 1, 1), padding=6, dilation=6))
    images.append(x := F.relu(t.conv("conv7", x)))
    for at, (stride, padding) in enumerate(((2, 1), (2, 1), (1, 0), (1, 0)), start=8):
        x = F.relu(t.conv(f"conv{at}_1", x))
        images.append(x := F.relu(t.conv(f"conv{at}_2", x, stride=stride, padding=padding)))
    outputs = []
    for output, width in (("boxes", 4), ("scores", 3)):
        parts = []
        for at, image in enumerate(images):
            made = t.conv(f"{output}{at}", image, padding=1)
            n, _, height, columns = made.shape
            parts.append(made.view(n, -1, width, height, columns).permute(0, 3, 4, 1, 2).reshape(n, -1, width))
        outputs.append(torch.cat(parts, 1))
    return outputs
