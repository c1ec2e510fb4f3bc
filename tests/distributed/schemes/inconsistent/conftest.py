from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from levelbench.distributed.communicators.threads import run_ranks
from levelbench.distributed.scheme import Worker
from levelbench.frameworks.numpy.backend import NumpyBackend
from levelbench.measure.clocks import HOST
from levelbench.networks.executor import Executor, LiveArrays
from levelbench.training import SGD


class Toy(Executor):
    """Parameters and nothing to compute: tests give the gradients."""

    network = None
    mode = "eager"

    def __init__(self, parameters):
        self.parameters, self.buffers = LiveArrays(parameters), LiveArrays({})

    def infer(self, *inputs):
        raise NotImplementedError

    def forward(self, *inputs):
        raise NotImplementedError

    def backward(self):
        raise NotImplementedError


@dataclass
class End:
    """Where a rank was after the last step."""

    parameters: dict[str, Any]
    averaged: dict[str, Any] | None
    notes: dict[str, list[float]]
    stepper: Any = field(repr=False)


def start(rank):
    """Parameters of two shapes, other ones on each rank, so that a missing broadcast would be seen."""
    return {"w": np.linspace(1, 2, 6).reshape(2, 3) + rank, "b": np.array([0.5, -0.5]) - rank}


def towards(rank, parameters, step):
    """The gradient of ½‖x - target‖² with a target of the rank's own."""
    return {name: each - (rank + 1) for name, each in parameters.items()}


@dataclass(frozen=True)
class Play:
    """Trains with a scheme on ranks that are threads, and answers with where each came to."""

    gradient: Callable[..., dict[str, Any]] = towards

    def __call__(
        self,
        scheme,
        size,
        steps,
        *,
        gradient=None,
        optimizer=None,
        shares=None,
        delays=None,
        meet=None,
        after=None,
        clock=HOST,
    ):
        """``meet``: after how many steps all meet; ``after(rank, step, stepper)`` is called after each step."""
        gradient, optimizer = gradient or self.gradient, optimizer or SGD(0.1)

        def work(communicator):
            rank, executor = communicator.rank, Toy(start(communicator.rank))
            worker = Worker(communicator, NumpyBackend(), executor, optimizer, seed=3, clock=clock)
            stepper, workers = scheme.start(worker), scheme.workers(size)
            averaged = None
            for first in range(1, steps + 1, meet or steps):
                last = min(steps, first + (meet or steps) - 1)
                # Servers are called more often than all meet: workers are in the next stretch before others end this.
                for step in range(first, last + 1, 2) if rank >= workers else ():
                    stepper.serve(step, min(step + 1, last), lambda step: 1.0)
                for step in range(first, last + 1) if rank < workers else ():
                    stepper.share = shares[rank] if shares else 1 / workers
                    stepper.step(gradient(rank, executor.parameters, step), step, 1.0)
                    if after:
                        after(rank, step, stepper)
                stepper.meet()
                if rank < workers:
                    given = stepper.averaged() or executor.parameters
                    averaged = {name: np.array(each) for name, each in given.items()}
            stepper.close()
            notes = {name: values for name, (_, values) in worker.ledger.take().items()}
            return End({name: np.array(each) for name, each in executor.parameters.items()}, averaged, notes, stepper)

        return run_ranks(size, work, delays=delays)


@pytest.fixture
def play():
    return Play()


@pytest.fixture
def begun():
    """The parameters that all ranks begin with: rank 0's."""
    return start(0)
