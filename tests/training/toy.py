"""A trainer on a tiny problem, whose quality follows a script."""

from weakref import ref

import numpy as np

from levelbench.frameworks.numpy import framework
from levelbench.measure.clocks import FakeClock
from levelbench.measure.timeline import Timeline
from levelbench.networks import Builder
from levelbench.networks.executor import Executor
from levelbench.training import SGD, Constant, Quality, Recipe, Shuffled, Trainer
from levelbench.training.datasets.base import Dataset, Split
from levelbench.training.stopping import Evaluate, Stopping

SAMPLES = 10


def make_dataset():
    generator = np.random.default_rng(0)

    def split(count):
        labels = np.arange(count) % 2
        inputs = generator.standard_normal((count, 3)) + 3 * labels[:, None]
        return Split.of(inputs.astype(np.float32), labels.astype(np.int64))

    return Dataset("toy", split(SAMPLES), split(6), split(8), 2, {}, "none", "none", "made here", synthetic=True)


class Scripted(Quality):
    """Follows a script on the validation split and is 0.5 on the test split."""

    metric, direction, low, high = "scripted", "higher", 0.0, 1.0

    def __init__(self, script, target=0.9):
        object.__setattr__(self, "target", target)
        object.__setattr__(self, "script", iter(script))
        object.__setattr__(self, "sizes", [])

    def measure(self, executor: Executor, held) -> float:
        self.sizes.append(len(held))
        return 0.5 if len(held) == 8 else next(self.script)


def make_trainer(script, *, crossing="confirmed", every="1 epoch", epochs=5, clock=None, observers=(), **options):
    quality = Scripted(script)
    recipe = Recipe(
        Builder("linear", (3,)).gemm(2).build(),
        Shuffled(4),
        options.pop("optimizer", None) or SGD(options.pop("lr", 0.1)),
        epochs=epochs,
        schedule=options.pop("schedule", Constant()),
    )
    stopping = Stopping(
        quality.as_target(),
        crossing,
        Evaluate.parse(every),
        options.pop("budget_epochs", epochs),
        options.pop("s", None),
    )
    timeline = Timeline(clock or FakeClock(tick_ns=1000), before_ns=options.pop("before_ns", None))
    trainer = Trainer(
        framework.open(), make_dataset(), recipe, quality, stopping, seed=0, timeline=timeline, observers=observers
    )
    return trainer, quality, timeline


def watched(batches, alive):
    """``batches``; at each request, the number of earlier ones still held is appended to ``alive``."""
    batches, earlier = iter(batches), []
    while True:
        alive.append(sum(each() is not None for each in earlier))
        # In a list, so that no local name holds it.
        batch = [next(batches, None)]
        if batch[0] is None:
            return
        # A copy, which only the caller can hold: a loader may keep a batch until the next one is requested.
        batch[0] = tuple(np.array(column) for column in batch[0])
        earlier.append(ref(batch[0][0]))
        yield batch.pop()


def watch(trainer):
    """The result of :func:`watched` for the trainer's batches, filled as it runs."""
    alive, batches = [], trainer.loader.batches
    trainer.loader.batches = lambda *given: watched(batches(*given), alive)
    return alive
