"""A used batch is freed before the next one is made, so that its memory can be reused."""

from dataclasses import dataclass
from time import sleep
from weakref import ref

import numpy as np
import pytest
from tests.training.toy import SAMPLES, make_trainer, watch, watched

from levelbench.measure.clocks import HOST, FakeClock
from levelbench.measure.timeline import Timeline
from levelbench.operators.frameworks import open_framework
from levelbench.records.schema import Target
from levelbench.training import input as inputs
from levelbench.training.augmentation import Augmentation
from levelbench.training.datasets.base import Dataset, Split
from levelbench.training.input import Prefetch, make_loader
from levelbench.training.samplers import Sequential
from levelbench.training.stopping import Evaluate, Stopping
from levelbench.training.trainer import grouped


def made(count):
    return ((np.zeros(at + 1),) for at in range(count))


@pytest.mark.parametrize("budget", [{}, {"s": 1e6}], ids=["no budget", "a budget in seconds"])
def test_the_trainer_holds_no_batch_while_the_next_one_is_made(budget):
    trainer, _, _ = make_trainer([0.1] * 2, epochs=2, **budget)
    alive = watch(trainer)
    trainer.run()
    steps = -(-SAMPLES // 4)
    assert alive == [0] * 2 * (steps + 1)


def test_a_group_of_batches_is_freed_before_the_next_group_is_made():
    alive = []
    for _ in map(len, grouped(watched(made(6), alive), 2)):
        pass
    # Within a group the earlier ones are part of it.
    assert alive == [0, 1, 0, 1, 0, 1, 0]


def test_a_budget_in_seconds_holds_no_batch():
    stopping, alive = Stopping(Target("top1", 0.9), "confirmed", Evaluate(1, "epoch"), 10, budget_s=1e6), []
    for _ in map(len, stopping.in_time(watched(made(3), alive), Timeline(FakeClock()), [])):
        pass
    assert alive == [0, 0, 0, 0]


def test_a_workers_result_is_not_held_while_waiting_for_the_next():
    earlier, prefetch = [], Prefetch(1)

    def waits():
        until = HOST.now_ns() + 5 * 10**9
        while (not earlier or earlier[0]() is not None) and HOST.now_ns() < until:
            sleep(0.001)
        return earlier[0]() is None

    results = prefetch.ordered(iter([lambda: np.zeros(1), waits]))
    earlier.append(ref(next(results)))
    assert next(results)
    prefetch.close()


@dataclass(frozen=True)
class Watching(Augmentation):
    """Counts the blocks that are alive when it makes one."""

    seen: list
    alive: list

    def apply(self, images, seeds):
        """As they are."""
        self.alive.append(sum(each() is not None for each in self.seen))
        result = images.copy()
        self.seen.append(ref(result))
        return result


def test_a_host_block_is_freed_before_the_next_is_made(monkeypatch):
    monkeypatch.setattr(inputs, "_EXAMPLES", 4)
    split = Split.of(np.zeros((12, 1, 2, 2), np.float32), np.zeros(12, np.int64))
    dataset = Dataset("made", split, split, split, 2, {}, "", "", "", synthetic=True)
    watching = Watching([], [])
    loader = make_loader(open_framework("numpy"), dataset, split, Sequential(2), seed=0, augment=(watching,))
    assert sum(map(len, loader.batches(0))) == 12
    assert watching.alive == [0, 0, 0]
