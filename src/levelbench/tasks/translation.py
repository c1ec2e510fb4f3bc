"""translation-en-es: verses of the Bible from English to Spanish, scored by BLEU of greedy translations.

18,541 pairs of verses to train on, with at most 39 tokens per side. Claim: none measured yet; the target is to be set
by the knee rule of docs/evidence/targets.md. Hardware: CPU, tens of minutes. n: none yet.
docs/reference/text-tasks.md describes the data.
"""

from __future__ import annotations

from levelbench.networks.losses import with_token_loss
from levelbench.networks.network import Network
from levelbench.networks.zoo.language import transformer
from levelbench.training.datasets.bibles import LENGTH, TOKENS, VersePairs
from levelbench.training.optimizers import Adam
from levelbench.training.quality import Bleu, Perplexity
from levelbench.training.samplers import Shuffled
from levelbench.training.schedules import WarmupCosine
from levelbench.training.task import Recipe, Task

task = Task(
    "translation-en-es",
    data=VersePairs(),
    quality=Bleu(target=8.0),
    also=(Perplexity(target=20.0, ignored=0),),
    evaluate_every="2 epochs",
    clock="wall",
    description="31,053 pairs of verses, English to Spanish, by BLEU: tens of minutes on a laptop",
)


@task.recipe
def small_transformer(
    width: int = 128,
    layers: int = 2,
    heads: int = 4,
    dropout: float = 0.1,
    batch: int = 64,
    lr: float = 0.001,
    epochs: int = 30,
) -> Recipe:
    """Encoder and decoder of two layers with one vocabulary, Adam at a constant rate."""
    return Recipe(
        network=_network(width, layers, heads, dropout),
        sampler=Shuffled(batch),
        optimizer=Adam(lr),
        epochs=epochs,
    )


@task.recipe
def onecycle(
    width: int = 128,
    layers: int = 2,
    heads: int = 4,
    dropout: float = 0.1,
    batch: int = 64,
    lr: float = 0.003,
    epochs: int = 10,
) -> Recipe:
    """The same with a one-cycle rate of fixed length; the target is tested at its end."""
    return Recipe(
        network=_network(width, layers, heads, dropout),
        sampler=Shuffled(batch),
        optimizer=Adam(lr),
        schedule=WarmupCosine(),
        epochs=epochs,
    )


def _network(width: int, layers: int, heads: int, dropout: float) -> Network:
    """Padding does not count in the loss."""
    return with_token_loss(
        transformer(
            name="small-transformer",
            layers=layers,
            width=width,
            heads=heads,
            inner=4 * width,
            vocabulary=TOKENS,
            positions=LENGTH,
            dropout_ratio=dropout,
        )
    )
