"""Autoencoders: the deep one of Hinton & Salakhutdinov 2006, and the variational one of Kingma & Welling 2014."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from levelbench.networks.builder import GraphBuilder
from levelbench.networks.network import Network
from levelbench.networks.zoo.blocks import linear, normal, xavier
from levelbench.networks.zoo.entry import Entry, Published, register

__all__ = ["NAMES", "autoencoder", "vae"]

NAMES = ("autoencoder", "vae")
PAPER_DEEP = (
    "Hinton, Salakhutdinov 2006: Reducing the dimensionality of data with neural networks, Science 313, 504-507"
)
PAPER_VAE = "Kingma, Welling 2014: Auto-encoding variational Bayes, arXiv:1312.6114"


def autoencoder(*, name: str = "autoencoder", widths: Sequence[int] = (784, 1000, 500, 250, 30)) -> Network:
    """Pixels (batch, 784) to their reconstruction in (0, 1); ``widths`` go down to the linear code and back up.

    All layers but the code have a logistic activation. Weights are Glorot's: the paper's come from pretraining with
    restricted Boltzmann machines, which Glorot & Bengio 2010 made unnecessary.
    """
    g = GraphBuilder(name)
    x = g.input("input", ("batch", widths[0]))
    there_and_back = [*widths, *reversed(widths[:-1])]
    for at, (inputs, outputs) in enumerate(pairwise(there_and_back)):
        x = linear(g, f"layer{at}", x, inputs, outputs, xavier(inputs, outputs))
        if at != len(widths) - 2:
            x = g.node("Sigmoid", x)
    g.output(x, "reconstruction")
    return g.build()


def vae(*, name: str = "vae", pixels: int = 784, hidden: int = 500, latent: int = 20) -> Network:
    """``input`` (batch, pixels) in [0, 1] and ``noise`` (batch, latent), which is to be standard normal.

    Outputs the ``reconstruction``, ``mean`` and ``log_variance`` of the code, and the ``loss``: the negative evidence
    lower bound of a Bernoulli decoder (appendix B and C.1), in nats a sample, mean over the batch. The draw is an input
    so that every framework computes the same.
    """
    g, draw = GraphBuilder(name), normal(0.01)
    x, noise = g.input("input", ("batch", pixels)), g.input("noise", ("batch", latent))
    h = g.node("Tanh", linear(g, "encoder", x, pixels, hidden, draw))
    mean = linear(g, "mean", h, hidden, latent, draw)
    log_variance = linear(g, "log_variance", h, hidden, latent, draw)
    deviation = g.node("Exp", g.node("Mul", log_variance, g.constant(0.5)))
    code = g.node("Add", mean, g.node("Mul", deviation, noise))
    h = g.node("Tanh", linear(g, "decoder", code, latent, hidden, draw))
    logits = linear(g, "pixels", h, hidden, pixels, draw)
    g.output(g.node("Sigmoid", logits), "reconstruction")
    g.output(mean, "mean")
    g.output(log_variance, "log_variance")
    g.output(_bound(g, x, logits, mean, log_variance), "loss")
    return g.build().replace(loss="loss")


def _bound(g: GraphBuilder, x: str, logits: str, mean: str, log_variance: str) -> str:
    """The negative evidence lower bound: cross-entropy of the pixels, and the divergence from the prior."""
    # softplus(z) - x z is -log of the Bernoulli likelihood, from logits so that no logarithm meets a zero.
    pixels = g.node("Sub", g.node("Softplus", logits), g.node("Mul", x, logits))
    spread = g.node("Sub", g.node("Sub", g.node("Exp", log_variance), log_variance), g.constant(1.0))
    divergence = g.node("Mul", g.node("Add", g.node("Mul", mean, mean), spread), g.constant(0.5))
    last = g.constant([1])
    sums = (g.node("ReduceSum", each, last, keepdims=0) for each in (pixels, divergence))
    return str(g.node("ReduceMean", g.node("Add", *sums), keepdims=0))


register(
    Entry(
        "autoencoder",
        autoencoder,
        PAPER_DEEP,
        Published(
            2_837_314,
            None,
            "the same network in Reddi et al. 2021, arXiv:2003.00295 (summary in its code); the paper prints none",
        ),
        "generative",
        "784-1000-500-250-30 and back",
    )
)
register(
    Entry(
        "vae",
        vae,
        PAPER_VAE,
        Published(None, None, PAPER_VAE, "the paper prints no count"),
        "generative",
        "variational autoencoder 784-500-20 with its loss",
    )
)
