import numpy as np
import pytest

from levelbench.measure.clocks import FakeClock
from levelbench.measure.stopping import FixedCount
from levelbench.training.input import Loader
from levelbench.training.sampler_bias import dataset_latency

MS = 1_000_000


class Slow(Loader):
    """Three batches an epoch, each of which takes as long as the script says."""

    steps = 3

    def __init__(self, clock, batch_ms):
        self.clock, self.batch_ms, self.epochs = clock, batch_ms, []

    def batches(self, epoch, first=0, last=None, progress=0.0):
        self.epochs.append(epoch)
        for step in range(3):
            self.clock.advance(self.batch_ms * MS)
            yield (np.array([step]),)

    def sizes(self, epoch):
        return np.ones(3, np.int64)


def test_the_latency_of_a_dataset_is_the_time_of_a_batch_with_its_interval():
    clock = FakeClock()
    loader = Slow(clock, 200)
    found = dataset_latency(loader, FixedCount(8), clock=clock, warmup=0)
    estimate = found.estimate()
    assert (estimate.value, estimate.n) == (pytest.approx(0.2), 8)
    assert 0.2 in estimate.interval or estimate.interval.low == pytest.approx(0.2)
    assert found.name == "dataset latency"


def test_the_epochs_follow_each_other():
    clock = FakeClock()
    loader = Slow(clock, 200)
    dataset_latency(loader, FixedCount(8), clock=clock, warmup=0)
    assert loader.epochs[:3] == [0, 1, 2]


def test_on_a_device_a_batch_has_to_have_arrived():
    clock = FakeClock()

    class Device:
        finished = 0

        def finish(self, arrays):
            self.finished += 1
            clock.advance(50 * MS)

    device = Device()
    found = dataset_latency(Slow(clock, 200), FixedCount(8), backend=device, clock=clock, warmup=0)
    assert found.estimate().value == pytest.approx(0.25)
    assert device.finished >= 8
