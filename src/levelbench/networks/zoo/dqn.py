"""Networks that play Atari games from four frames of 84 x 84: DQN (Mnih et al. 2015) and A3C (Mnih et al. 2016)."""

from __future__ import annotations

import math

from levelbench.networks.builder import GraphBuilder
from levelbench.networks.network import Draw, Network
from levelbench.networks.zoo.blocks import conv, linear, uniform
from levelbench.networks.zoo.entry import Entry, Published, register

__all__ = ["NAMES", "a3c", "dqn"]

NAMES = ("dqn", "a3c")
PAPER_DQN = "Mnih et al. 2015: Human-level control through deep reinforcement learning, Nature 518, 529-533"
PAPER_A3C = "Mnih et al. 2016: Asynchronous methods for deep reinforcement learning, arXiv:1602.01783"
_Layers = tuple[tuple[int, int, int], ...]


def _frames(g: GraphBuilder, layers: _Layers) -> tuple[str, int]:
    """Frames (batch, 4, 84, 84) through convolutions (channels, kernel, stride) with ReLU, flattened; its width."""
    x, before, size = g.input("input", ("batch", 4, 84, 84)), 4, 84
    for at, (channels, kernel, stride) in enumerate(layers):
        draw = _torch7(before * kernel * kernel)
        square, step = (kernel, kernel), (stride, stride)
        x = g.node("Relu", conv(g, f"conv{at}", x, (before, channels), square, draw, strides=step, bias=draw))
        before, size = channels, (size - kernel) // stride + 1
    return str(g.node("Flatten", x, axis=1)), before * size * size


def _dense(g: GraphBuilder, name: str, x: str, inputs: int, outputs: int) -> str:
    return linear(g, name, x, inputs, outputs, _torch7(inputs), _torch7(inputs))


def _torch7(fan_in: int) -> Draw:
    """Weights and biases uniform with half width 1 / sqrt(fan-in): the default of Torch, in which the authors wrote."""
    return uniform(1.0 / math.sqrt(fan_in))


def dqn(*, name: str = "dqn", actions: int = 4) -> Network:
    """Frames (batch, 4, 84, 84), scaled to [0, 1] by the caller, to the value of each action (batch, actions)."""
    g = GraphBuilder(name)
    x, width = _frames(g, ((32, 8, 4), (64, 4, 2), (64, 3, 1)))
    x = g.node("Relu", _dense(g, "hidden", x, width, 512))
    g.output(_dense(g, "values", x, 512, actions), "values")
    return g.build()


def a3c(*, name: str = "a3c", actions: int = 4) -> Network:
    """Frames (batch, 4, 84, 84) to logits of the policy (batch, actions) and the value of the state (batch, 1).

    The feed-forward agent of section 5.1; the recurrent one has an LSTM of 256 cells behind the hidden layer.
    """
    g = GraphBuilder(name)
    x, width = _frames(g, ((16, 8, 4), (32, 4, 2)))
    x = g.node("Relu", _dense(g, "hidden", x, width, 256))
    g.output(_dense(g, "policy", x, 256, actions), "logits")
    g.output(_dense(g, "value", x, 256, 1), "value")
    return g.build()


register(
    Entry(
        "dqn",
        dqn,
        PAPER_DQN,
        Published(
            1_686_180,
            None,
            "with 4 actions (Breakout): Keras's and torchinfo's summaries of the network; the paper prints no count",
        ),
        "reinforcement learning",
        "three convolutions and two layers: the value of each action",
    )
)
register(
    Entry(
        "a3c",
        a3c,
        PAPER_A3C,
        Published(None, None, PAPER_A3C, "the paper prints no count"),
        "reinforcement learning",
        "two convolutions and a layer: a policy and a value",
    )
)
