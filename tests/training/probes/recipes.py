"""A correct recipe on generated data, and the findings of its check."""

from dataclasses import replace

import numpy as np

from levelbench.frameworks.numpy import framework
from levelbench.networks import Builder
from levelbench.networks.builder import GraphBuilder
from levelbench.networks.zoo.blocks import batch_norm, dropout, linear, xavier
from levelbench.training import Momentum, Recipe, Shuffled, Task, Top1
from levelbench.training.datasets.base import Dataset, DatasetSource, Split
from levelbench.training.probes.recipe import check_recipe

CLASSES, SIDE = 4, 6
NUMPY = framework.open()


def make_dataset(shift=0):
    """Images of classes that a small network can distinguish; ``shift`` moves labels away from their inputs."""
    random = np.random.default_rng(0)
    centres = 2 * random.standard_normal((CLASSES, 1, SIDE, SIDE))

    def split(count):
        labels = random.integers(0, CLASSES, count)
        inputs = centres[labels] + random.standard_normal((count, 1, SIDE, SIDE))
        return Split.of(inputs.astype(np.float32), np.roll(labels, shift).astype(np.int64))

    return Dataset("toy", split(256), split(64), split(64), CLASSES, {}, "none", "none", "made here", synthetic=True)


DATA = make_dataset()


class Source(DatasetSource):
    name, licence, attribution = "toy", "CC0", "nobody"

    def load(self, folder=None):
        return DATA

    def lacks(self, folder=None):
        return None


def network():
    return Builder("small", (1, SIDE, SIDE)).conv(4, 3).relu().flatten().gemm(CLASSES).build()


def regularised(ratio):
    """A network with batch normalisation, which has running statistics, and dropout, which is random."""
    size = SIDE * SIDE
    graph = GraphBuilder("regularised")
    flat = graph.node("Flatten", graph.input("x", ("batch", 1, SIDE, SIDE)))
    normalised = dropout(graph, batch_norm(graph, "norm", flat, size), ratio)
    graph.output(linear(graph, "last", normalised, size, CLASSES, xavier(size, CLASSES)))
    return graph.build()


def recipe(**changes):
    made = Recipe(network(), Shuffled(32), Momentum(0.05), epochs=4)
    return replace(made, **changes)


def task_of(function, quality=None, also=()):
    made = Task("toy", data=Source(), quality=quality or Top1(0.9), also=also, description="toy")
    made.recipe(function)
    return made


def checked(made, quality=None, data=DATA, backend=NUMPY, also=(), **options):
    def planted():
        """A recipe."""
        return made() if callable(made) else made

    return check_recipe(
        task_of(planted, quality, also), "planted", data, backend, framework="numpy", seconds=1.0, **options
    )


def found(made, quality=None, data=DATA, also=()):
    """The probes that fail, and their findings."""
    return {each.probe: f"{each.found}. {each.do}" for each in checked(made, quality, data, also=also).failed}
