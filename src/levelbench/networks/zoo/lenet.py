"""LeNet-5 (LeCun et al. 1998): as in the paper, with its sparse third layer, and as nearly everybody builds it."""

from __future__ import annotations

from levelbench.networks.network import Network
from levelbench.networks.values import Draw
from levelbench.networks.zoo.entry import Entry, Published, register
from levelbench.networks.zoo.layers import ImageBuilder, torch_default

__all__ = ["NAMES", "dense_lenet5", "lenet5"]

NAMES = ("lenet5", "lenet5-dense")
PAPER = "LeCun, Bottou, Bengio, Haffner 1998: Gradient-based learning applied to document recognition, Proc. IEEE 86"


def lenet5(*, classes: int = 10) -> Network:
    """The paper's network: (batch, 1, 32, 32) to logits (batch, classes).

    Subsampling has a coefficient and a bias a map, the third layer connects the maps of table I only, and units are
    1.7159 tanh(2/3 x) (appendix A). Weights are drawn uniformly in 2.4 / fan-in on both sides. The paper's output, a
    distance to a fixed picture of each class, is a linear layer here.
    """
    g = ImageBuilder("lenet5")
    x = g.image(1, 32)
    x = _squash(g, g.conv(x, 6, 5, name="c1", draw=_draw(25), bias=_draw(25)))
    x = _squash(g, _subsample(g, x, "s2"))
    x = _squash(g, _third(g, x))
    x = _squash(g, _subsample(g, x, "s4"))
    x = g.flatten(_squash(g, g.conv(x, 120, 5, name="c5", draw=_draw(400), bias=_draw(400))))
    x = _squash(g, g.linear(x, 84, name="f6", draw=_draw(120), bias=_draw(120)))
    g.output(g.linear(x, classes, name="output", draw=_draw(84), bias=_draw(84)), "logits")
    return g.build()


def dense_lenet5(*, classes: int = 10) -> Network:
    """All maps connected, plain averages, tanh: (batch, 1, 32, 32) to logits (batch, classes)."""
    g = ImageBuilder("lenet5-dense")
    x = g.image(1, 32)
    for at, (channels, fan) in enumerate(((6, 25), (16, 150)), start=1):
        x = _tanh(g, g.conv(x, channels, 5, name=f"conv{at}", draw=torch_default(fan), bias=torch_default(fan)))
        x = g.average_pool(x, 2, 2)
    x = g.flatten(x)
    for at, width in enumerate((120, 84), start=1):
        x = _tanh(g, g.linear(x, width, name=f"fc{at}", bias=torch_default(g.shape(x)[0])))
    g.output(g.linear(x, classes, name="fc3", bias=torch_default(84)), "logits")
    return g.build()


def _draw(fan: int) -> Draw:
    return Draw("uniform", 2.4 / fan)


def _tanh(g: ImageBuilder, x: str) -> str:
    return g.shaped(g.node("Tanh", x), g.shape(x))


def _squash(g: ImageBuilder, x: str) -> str:
    inner = _tanh(g, g.shaped(g.node("Mul", x, g.constant(2.0 / 3.0)), g.shape(x)))
    return g.shaped(g.node("Mul", inner, g.constant(1.7159)), g.shape(x))


def _subsample(g: ImageBuilder, x: str, name: str) -> str:
    """Coefficient times the sum of each 2x2 window, plus a bias; the sum is four times the mean."""
    pooled = g.average_pool(x, 2, 2)
    shape = g.shape(pooled)
    with g.scope(name):
        weight = g.parameter("weight", (shape[0], 1, 1), Draw("uniform", 2.4 / 4))
        bias = g.parameter("bias", (shape[0], 1, 1), Draw("uniform", 2.4 / 4))
        total = g.node("Mul", pooled, g.constant(4.0))
        return g.shaped(g.node("Add", g.node("Mul", total, weight), bias), shape)


def _third(g: ImageBuilder, x: str) -> str:
    """Layer C3 by table I: six maps of three neighbours, six of four, three of four that are apart, one of all."""
    triples = [(at + step) % 6 for at in range(6) for step in range(3)]
    quadruples = [(at + step) % 6 for at in range(6) for step in range(4)]
    apart = [(at + step) % 6 for at in range(3) for step in (0, 1, 3, 4)]
    parts = []
    with g.scope("c3"):
        for at, (chosen, groups) in enumerate(((triples, 6), (quadruples, 6), (apart, 3), (None, 1))):
            image = x
            if chosen is not None:
                image = g.shaped(g.node("Gather", x, g.constant(chosen), axis=1), (len(chosen), *g.shape(x)[1:]))
            fan = 25 * g.shape(image)[0] // groups
            parts.append(g.conv(image, groups, 5, name=str(at), groups=groups, draw=_draw(fan), bias=_draw(fan)))
    return g.concat(*parts)


register(
    Entry(
        "lenet5",
        lenet5,
        PAPER,
        Published(
            60_000,
            None,
            "section II.B of the paper: 60,000 trainable parameters",
            "60,850: the 850 more are those of the linear layer in the place of fixed pictures of the classes",
        ),
        "vision",
        "the paper's, with its sparse third layer and trained subsampling",
    )
)
register(
    Entry(
        "lenet5-dense",
        dense_lenet5,
        PAPER,
        Published(
            61_706,
            None,
            "mnchapel.github.io/deep_learning_models, LeNet: the sizes of its layers, 61,706 in all",
            "not the paper's network: all maps are connected and subsampling has no parameters",
        ),
        "vision",
        "LeNet-5 as nearly everybody builds it",
    )
)
