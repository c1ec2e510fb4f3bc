"""movielens: the next film of each of 671 people among the ten likeliest of a hundred, to an HR@10 of 0.73.

The others of the hundred are films that the person has not rated. Ranking by how often a film was rated gives 0.608.
The target is set by the knee rule from 12 seeds of `gmf`. docs/evidence/small-tasks.md has the table, the commands and
the measurements.
"""

from __future__ import annotations

from levelbench.networks.network import Network
from levelbench.networks.zoo.agents import ncf
from levelbench.training import Adam, Recipe, Shuffled, Task, datasets
from levelbench.training.quality import NDCG, HitRate
from levelbench.training.schedules import WarmupCosine

task = Task(
    "movielens",
    data=datasets.movielens,
    quality=HitRate(target=0.73),
    also=(NDCG(target=0.45),),
    evaluate_every="1 epoch",
    clock="wall",
    description="100,004 ratings of films, the next film of each person by HR@10: seconds on a laptop",
)


@task.recipe
def gmf(factors: int = 16, batch: int = 1024, lr: float = 0.01, epochs: int = 20) -> Recipe:
    """Generalised matrix factorisation, Adam at a constant rate; stops once the target is confirmed."""
    return Recipe(network=_network(factors, ()), sampler=Shuffled(batch), optimizer=Adam(lr), epochs=epochs)


@task.recipe
def onecycle(factors: int = 16, batch: int = 1024, lr: float = 0.04, epochs: int = 5) -> Recipe:
    """The same with a one-cycle rate of fixed length; the target is tested at its end."""
    return Recipe(
        network=_network(factors, ()),
        sampler=Shuffled(batch),
        optimizer=Adam(lr),
        schedule=WarmupCosine(),
        epochs=epochs,
    )


@task.recipe
def neumf(factors: int = 8, hidden: int = 32, batch: int = 1024, lr: float = 0.005, epochs: int = 20) -> Recipe:
    """NeuMF: a product of factors beside a perceptron of three layers, which starts from random weights."""
    network = _network(factors, (hidden, hidden // 2, hidden // 4))
    return Recipe(network=network, sampler=Shuffled(batch), optimizer=Adam(lr), epochs=epochs)


def _network(factors: int, layers: tuple[int, ...]) -> Network:
    """The logits that a person likes each film of a row, with the binary cross-entropy of all of them."""
    network = ncf(name="neumf" if layers else "gmf", users=671, items=9066, factors=factors, layers=layers, rows=True)
    return network.with_loss("binary-cross-entropy")
