"""Chains, Inception, U-Net, SSD and the vision transformer equal independent implementations in PyTorch."""

import pytest
from tests.networks.zoo.vision_twins import Twin, assert_twins

from levelbench.networks import zoo
from levelbench.networks.zoo import images
from levelbench.operators.frameworks import open_framework

torch = pytest.importorskip("torch")
F = torch.nn.functional


# Table I of the paper: which maps of S2 each map of C3 sees.
TABLE = (
    "X...XXX..XXXX.XX",
    "XX...XXX..XXXX.X",
    "XXX...XXX..X.XXX",
    ".XXX..XXXX..X.XX",
    "..XXX..XXXX.XX.X",
    "...XXX..XXXX.XXX",
)


def test_lenet5_connects_its_maps_as_in_the_papers_table():
    seen = [[at for at, row in enumerate(TABLE) if row[column] == "X"] for column in range(16)]
    # A map's weights begin with the first of its neighbours, which is not the lowest if they wrap around.
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


def test_a_padded_unet_equals_its_twin_and_leaves_the_size_as_it_is():
    def forward(t, x):
        def twice(name, x):
            for at in (1, 2):
                x = F.relu(t.norm(f"{name}.{at}.norm", t.conv(f"{name}.{at}", x, padding=1)))
            return x

        first = twice("down0", x)
        x = twice("down1", F.max_pool2d(first, 2))
        x = F.conv_transpose2d(x, t.p["up0.conv.weight"], t.p["up0.conv.bias"], stride=2)
        return t.conv("classifier", twice("up0", torch.cat([first, x], 1)))

    network = images.unet(width=3, classes=4, levels=2, size=12, dropout=0.0, padded=True)
    assert network.outputs[0].shape == ("batch", 4, 12, 12)
    assert_twins(network, forward, batch=2)


def encoder_layer(p, name, width, heads):
    """PyTorch's own layer with our weights; it has queries, keys and values in one matrix."""
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


@pytest.mark.slow
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
