"""speech: transcribe spoken numbers of two to four digits to a character error rate of 0.05.

Calls of four seconds, put together from the telephone prompts of five voice sets with other prompts behind the number,
since there is too little of the prompts themselves to learn words that were not heard before. No number is in two
splits, but the recordings of the digits are the same in all. docs/evidence/small-tasks.md has the commands and the
measurements.
"""

from __future__ import annotations

from levelbench.networks.builder import GraphBuilder
from levelbench.networks.losses import with_ctc_loss
from levelbench.networks.network import Network
from levelbench.networks.zoo.blocks import ZEROS, batch_norm, he, torch_default
from levelbench.training import Adam, Recipe, Shuffled, Task, datasets
from levelbench.training.datasets.sounds import BANDS, MOST_DIGITS
from levelbench.training.schedules import WarmupCosine
from levelbench.training.transcripts import CharacterErrorRate

task = Task(
    "speech",
    data=datasets.spoken_numbers,
    quality=CharacterErrorRate(target=0.05),
    evaluate_every="1 epoch",
    clock="wall",
    description="3,000 made calls with a number of up to four digits, character errors: a minute on a laptop",
)


@task.recipe
def ctc(width: int = 64, batch: int = 32, lr: float = 0.003, epochs: int = 40) -> Recipe:
    """Four convolutions over time and CTC, Adam at a constant rate; stops once the target is confirmed."""
    return Recipe(network=_network(width), sampler=Shuffled(batch), optimizer=Adam(lr), epochs=epochs)


@task.recipe
def onecycle(width: int = 64, batch: int = 32, lr: float = 0.006, epochs: int = 12) -> Recipe:
    """The same with a one-cycle rate of fixed length; the target is tested at its end."""
    return Recipe(
        network=_network(width), sampler=Shuffled(batch), optimizer=Adam(lr), schedule=WarmupCosine(), epochs=epochs
    )


def _network(width: int) -> Network:
    """From a spectrogram of 40 bands and 249 frames to logits of the blank and ten digits in 63, with CTC's loss."""
    g = GraphBuilder("ctc")
    x, bands = g.node("Squeeze", g.input("input", ("batch", 1, BANDS, 249)), g.constant([1])), BANDS
    for at, stride in enumerate((2, 2, 1)):
        with g.scope(f"conv{at}"):
            kernels = g.parameter("weight", (width, bands, 5), he(5 * bands))
            x = g.node("Conv", x, kernels, pads=[2, 2], strides=[stride])
        x, bands = g.node("Relu", batch_norm(g, f"norm{at}", x, width)), width
    kernels, bias = g.parameter("symbols", (11, width, 1), torch_default(width)), g.parameter("bias", (11,), ZEROS)
    g.output(g.node("Transpose", g.node("Conv", x, kernels, bias), perm=[0, 2, 1]), "logits")
    return with_ctc_loss(g.build(), MOST_DIGITS)
