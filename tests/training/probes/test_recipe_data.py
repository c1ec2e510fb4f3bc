"""Data, networks and augmentations that do not fit together are found."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from tests.training.probes.recipes import CLASSES, DATA, NUMPY, SIDE, found, make_dataset, recipe, task_of

from levelbench.networks import Builder, zoo
from levelbench.training import Adam
from levelbench.training.augmentation import Augmentation
from levelbench.training.datasets.base import Split
from levelbench.training.probes.recipe import check_recipe


def test_labels_next_to_the_wrong_inputs_are_found():
    wide = Builder("wide", (1, SIDE, SIDE)).flatten().gemm(256).relu().gemm(CLASSES).build()
    made = recipe(network=wide, optimizer=Adam(0.01))
    report = check_recipe(
        task_of(lambda: made), "<lambda>", make_dataset(shift=1), NUMPY, framework="numpy", seconds=4.0
    )
    assert "labels belong to their inputs" in report.of("learning")[0].do


def test_columns_in_the_wrong_order_are_found():
    swapped = replace(DATA, train=Split((DATA.train.labels, DATA.train.inputs)))
    said = found(recipe(), data=swapped)
    assert "inputs" in said


def test_a_network_for_another_size_is_found():
    said = found(recipe(network=zoo.mlp(30, 8, CLASSES)))
    assert "column 0 has the shape [32, 1, 6, 6]" in said["inputs"]


def test_a_network_with_too_few_outputs_is_found():
    small = Builder("small", (1, SIDE, SIDE)).flatten().gemm(CLASSES - 1).build()
    assert "3 outputs for 4 classes" in found(recipe(network=small))["inputs"]


@dataclass(frozen=True)
class SharedDraw(Augmentation):
    """One shift for the whole batch, drawn from the first seed."""

    def apply(self, images, seeds):
        return np.roll(images, int(seeds[0] % 5), axis=3)


@dataclass(frozen=True)
class InPlace(Augmentation):
    def apply(self, images, seeds):
        images *= -1
        return images


@pytest.mark.parametrize(
    ("augmentation", "says"),
    [(SharedDraw(), "changes an image in a batch differently"), (InPlace(), "changes its input array")],
)
def test_an_augmentation_that_depends_on_the_batch_is_found(augmentation, says):
    assert says in found(recipe(augment=(augmentation,)))["augmentation"]
