"""What a scheme itself computes in a step is measured without its communication and the optimizer's update."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from levelbench.distributed.finding import named_scheme
from levelbench.distributed.simulation.encoding import encoding_s
from levelbench.measure.clocks import FakeClock
from levelbench.operators.frameworks import open_framework
from levelbench.planted.schemes_known import Plain, PlainStepper

SHAPES = {"weight": (6, 4), "bias": (4,)}
BACKEND = open_framework("numpy")


def scheme_that(encode):
    """A scheme whose steps spend time on a fake clock, and that clock."""
    clock = FakeClock()

    class Spending(PlainStepper):
        def step(self, gradients, step, factor):
            encode(clock, self.communicator)
            super().step(gradients, step, factor)

    @dataclass(frozen=True)
    class Encoding(Plain):
        stepper: ClassVar = Spending

    return Encoding(), clock


def test_the_time_of_its_own_work_is_exact_on_a_fake_clock():
    scheme, clock = scheme_that(lambda clock, _: clock.advance(5_000_000))
    assert encoding_s(scheme, SHAPES, 4, BACKEND, clock=clock).value == pytest.approx(5e-3)


def test_the_payloads_of_all_ranks_are_added_up_and_beyond_64_on_a_straight_line():
    def decode(clock, communicator):
        for _ in communicator.all_gather(np.zeros(3)):
            clock.advance(1_000)

    scheme, clock = scheme_that(decode)
    assert encoding_s(scheme, SHAPES, 8, BACKEND, clock=clock).value == pytest.approx(8e-6)
    assert encoding_s(scheme, SHAPES, 1000, BACKEND, clock=clock).value == pytest.approx(1000e-6)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("name", ["top-k", "random-k", "threshold", "qsgd", "sign", "fp16", "power-sgd", "all-reduce"])
def test_every_compressed_scheme_can_be_measured(name, framework):
    pytest.importorskip(framework)
    assert encoding_s(named_scheme(name), SHAPES, 3, open_framework(framework)).value > 0


@pytest.mark.parametrize("name", ["gossip", "parameter-server"])
def test_a_scheme_that_needs_real_partners_is_unknown(name):
    assert encoding_s(named_scheme(name), SHAPES, 4, BACKEND) is None


def test_what_comes_before_a_step_does_not_count():
    scheme, clock = scheme_that(lambda clock, _: clock.advance(5_000_000))
    found = encoding_s(scheme, SHAPES, 4, BACKEND, clock=clock, before=lambda: clock.advance(10**9))
    assert found.value == pytest.approx(5e-3)


def test_the_time_is_that_of_the_slowest_rank():
    scheme, clock = scheme_that(lambda clock, _: clock.advance(5_000_000))

    def slowest(times_s):
        return [each + at * 1e-3 for at, each in enumerate(times_s[:3])]

    found = encoding_s(scheme, SHAPES, 4, BACKEND, clock=clock, slowest=slowest)
    assert found.value == pytest.approx(6e-3)
    assert found.low < found.value < found.high
