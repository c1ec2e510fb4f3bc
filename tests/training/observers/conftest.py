import numpy as np
import pytest

from levelbench.frameworks.numpy import framework
from levelbench.measure.clocks import FakeClock
from levelbench.measure.timeline import Timeline
from levelbench.networks import zoo
from levelbench.records.schema import Specification, Target
from levelbench.training import Momentum, Recipe, Shuffled, Top1, Trainer
from levelbench.training.datasets.base import Dataset, Split
from levelbench.training.stopping import Evaluate, Stopping


@pytest.fixture
def specification():
    target = Target("top1", 0.9)
    return Specification("toy", "mlp", "numpy", "cpu", {"lr": 0.05}, target, "confirmed", "wall", "1 epoch", 3.0)


@pytest.fixture
def dataset():
    """Three classes of 4x4 pictures that a small network nearly tells apart."""
    random = np.random.default_rng(0)
    centres = random.standard_normal((3, 16))

    def split(count):
        labels = np.arange(count) % 3
        inputs = centres[labels] + 1.2 * random.standard_normal((count, 16))
        return Split.of(inputs.astype(np.float32), labels.astype(np.int64))

    return Dataset("toy", split(96), split(60), split(30), 3, {}, "none", "none", "made here", synthetic=True)


@pytest.fixture
def trained(dataset):
    """Train for three epochs of three steps with these observers; the trainer, once it is done."""

    def run(*observers):
        recipe = Recipe(zoo.mlp(16, 8, 3), Shuffled(32), Momentum(0.05), epochs=3)
        stopping = Stopping(Top1(0.99).as_target(), "sustained", Evaluate(1, "epoch"), 3)
        timeline = Timeline(FakeClock(tick_ns=1_000_000))
        trainer = Trainer(
            framework.open(), dataset, recipe, Top1(0.99), stopping, seed=0, timeline=timeline, observers=observers
        )
        trainer.run()
        return trainer

    return run
