"""code-lm: the next token of the source code of Python's own library, in bits per byte; lower is better.

4.0 million byte-pair tokens to train on, other modules held out. The files are those of the installed Python, and only
runs on the same files are compared. Pairs of tokens give 2.53, lzma 1.96. The target is set by the knee rule from 10
seeds of `llama`. docs/evidence/small-tasks.md has the table, the commands and the measurements.
"""

from __future__ import annotations

from levelbench.networks import zoo
from levelbench.networks.losses import with_balance
from levelbench.training import Adam, Recipe, Shuffled, Task
from levelbench.training.datasets.programs import ROW_LENGTH, TOKENS, PythonSources
from levelbench.training.quality import BitsPerByte

task = Task(
    "code-lm",
    data=PythonSources(),
    quality=BitsPerByte(target=2.37),
    evaluate_every="100 steps",
    clock="wall",
    description="predict the tokens of the installed Python's own source code: a minute on a laptop",
)


@task.recipe
def gpt(
    width: int = 64, layers: int = 2, heads: int = 4, batch: int = 8, lr: float = 0.0025, epochs: int = 1
) -> Recipe:
    """A two-layer GPT-2 without dropout, Adam at a constant rate; stops once the target is confirmed."""
    network = zoo.build(
        "gpt2-tiny",
        vocabulary=TOKENS,
        width=width,
        layers=layers,
        heads=heads,
        positions=ROW_LENGTH,
        dropout_ratio=0.0,
    )
    return Recipe(network=network, sampler=Shuffled(batch), optimizer=Adam(lr), epochs=epochs)


@task.recipe
def llama(
    width: int = 64,
    layers: int = 2,
    heads: int = 4,
    groups: int = 2,
    inner: int = 172,
    batch: int = 8,
    lr: float = 0.0025,
    epochs: int = 1,
) -> Recipe:
    """LLaMA's decoder of two layers: RMSNorm, rotary positions, SwiGLU, grouped queries; otherwise as `gpt`."""
    network = zoo.build(
        "llama-tiny",
        vocabulary=TOKENS,
        width=width,
        layers=layers,
        heads=heads,
        groups=groups,
        inner=inner,
        positions=ROW_LENGTH,
    )
    return Recipe(network=network, sampler=Shuffled(batch), optimizer=Adam(lr), epochs=epochs)


@task.recipe
def moe(
    width: int = 64,
    layers: int = 2,
    heads: int = 4,
    groups: int = 2,
    inner: int = 86,
    experts: int = 4,
    chosen: int = 2,
    balance: float = 0.01,
    batch: int = 8,
    lr: float = 0.0025,
    epochs: int = 1,
) -> Recipe:
    """`llama` with four SwiGLUs of half the width in a layer, of which a token has two; the loss balances them."""
    network = zoo.build(
        "moe-tiny",
        vocabulary=TOKENS,
        width=width,
        layers=layers,
        heads=heads,
        groups=groups,
        inner=inner,
        experts=experts,
        chosen=chosen,
        tied=True,
        positions=ROW_LENGTH,
    )
    network = with_balance(network.with_loss(), balance)
    return Recipe(network=network, sampler=Shuffled(batch), optimizer=Adam(lr), epochs=epochs)
