"""The same steps on the same global batches, by one process and by ranks in threads."""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from levelbench.distributed.communicators.threads import run_ranks
from levelbench.distributed.scheme import Worker
from levelbench.frameworks.numpy.backend import NumpyBackend
from levelbench.measure.clocks import HOST
from levelbench.measure.timeline import Phase
from levelbench.networks import Builder, Network, zoo
from levelbench.networks.builder import GraphBuilder
from levelbench.networks.executor import Executor, LiveArrays
from levelbench.networks.values import Draw
from levelbench.operators.frameworks import load_framework
from levelbench.training import SGD, Momentum, Shuffled, datasets
from levelbench.training.input import make_loader
from levelbench.training.samplers import Partitioned

SIZES = (7, 7, 5, 7, 2)
"""Sizes of the global batches, repeatedly: not divisible by 2 or 3 workers, and too few for 3 in the last one."""


def made_network(kind: str) -> Network:
    if kind == "cnn":
        network = Builder("cnn", (1, 6, 6)).conv(4, 3, padding=1).relu().max_pool(2).flatten().gemm(5).build()
    elif kind == "float64":
        graph = GraphBuilder("float64")
        value = graph.input("input", ("batch", 6), "float64")
        for at, (inputs, outputs) in enumerate(((6, 9), (9, 5))):
            weight = graph.parameter(f"weight{at}", (outputs, inputs), Draw("normal", 0.5), dtype="float64")
            bias = graph.parameter(f"bias{at}", (outputs,), Draw("constant", 0.0), dtype="float64")
            value = graph.node("Gemm", value, weight, bias, transB=1)
            value = graph.node("Tanh", value) if at == 0 else value
        graph.output(value, "logits")
        network = graph.build()
    else:
        network = zoo.mlp(6, 16, 5)
    return network.with_loss().training()


def batches(network: Network, steps: int):
    value = network.inputs[0]
    random = np.random.default_rng(0)
    for step in range(steps):
        count = SIZES[step % len(SIZES)]
        images = random.standard_normal((count, *value.shape[1:])).astype(value.dtype)
        yield images, random.integers(0, 5, count)


def alone(framework, network, optimizer, steps):
    backend = load_framework(framework).open()
    executor = backend.executor(network, network.initialise(0))
    stepper = optimizer.start(backend, executor.parameters)
    for step, batch in enumerate(batches(network, steps), 1):
        _, gradients = executor.infer_and_backprop(*map(backend.array, batch))
        stepper.step(gradients, step, 1 / step)
    averaged = stepper.averaged()
    return {name: backend.host(each) for name, each in (averaged or executor.parameters).items()}


def together(
    framework,
    network,
    optimizer,
    steps,
    scheme,
    ranks,
    *,
    wrap=lambda each: each,
    start=run_ranks,
    clock=HOST,
    **options,
):
    """The final parameters, ledger and phases of each rank."""

    def work(communicator):
        backend = load_framework(framework).open()
        # Different initial parameters on each rank: the scheme must make them equal.
        executor = backend.executor(network, network.initialise(communicator.rank))
        phases = []
        worker = Worker(wrap(communicator), backend, executor, optimizer, 0, phases.append, clock=clock)
        stepper = scheme.start(worker)
        workers = scheme.workers(ranks)
        if communicator.rank < workers:
            train(stepper, backend, batches(network, steps), communicator.rank, workers)
        else:
            stepper.serve(1, steps, lambda step: 1 / step)
        stepper.meet()
        averaged = stepper.averaged() if communicator.rank < workers else None
        stepper.close()
        parameters = {name: backend.host(each) for name, each in (averaged or executor.parameters).items()}
        return SimpleNamespace(parameters=parameters, noted=worker.ledger.take(), phases=phases)

    return start(ranks, work, **options)


def train(stepper, backend, given, rank, workers):
    executor = stepper.executor
    for step, batch in enumerate(given, 1):
        count = len(batch[0])
        first, last = (count * at // workers for at in (rank, rank + 1))
        stepper.share = (last - first) / count
        if first == last:
            zeros = {name: np.zeros(each.shape, backend.host(each).dtype) for name, each in executor.parameters.items()}
            gradients = {name: backend.array(each) for name, each in zeros.items()}
        else:
            executor.forward(*(backend.array(column[first:last]) for column in batch))
            gradients = executor.backward()
        stepper.step(gradients, step, 1 / step)


def distance(found, expected):
    """The largest relative distance between corresponding arrays."""
    assert found.keys() == expected.keys()
    return max(np.linalg.norm(found[name] - expected[name]) / np.linalg.norm(expected[name]) for name in expected)


class Still:
    """A clock that stands still, like a simulated one while a rank computes."""

    def now_ns(self):
        return 5


def accuracy(scheme, ranks, hidden, epochs):
    """Accuracy on the validation digits of what rank 0 evaluates after some epochs on ranks in threads."""
    dataset, sampler = datasets.digits.load(), Shuffled(64)
    network = zoo.mlp(64, hidden, 10).with_loss().training()

    def work(communicator):
        backend, rank, workers = NumpyBackend(), communicator.rank, scheme.workers(ranks)
        executor = backend.executor(network, network.initialise(rank))
        stepper, step = scheme.start(Worker(communicator, backend, executor, Momentum(0.05, 0.9))), 0
        part = Partitioned(sampler, min(rank, workers - 1), workers)
        loader = make_loader(backend, dataset, dataset.train, part, seed=1)
        for epoch in range(epochs):
            if rank >= workers:
                stepper.serve(step + 1, step + loader.steps, lambda step: 1.0)
                step += loader.steps
                continue
            whole = sampler.epoch(dataset.train, 1, epoch).sizes
            for at, columns in enumerate(loader.batches(epoch, 0, loader.steps, 0.0)):
                step += 1
                stepper.share = len(columns[0]) / whole[at]
                stepper.step(executor.infer_and_backprop(*columns)[1], step, 1.0)
        stepper.meet()
        if rank < workers:
            executor.parameters.update(stepper.averaged() or {})
        inputs, labels = dataset.validation.columns
        return float(np.mean(executor.infer(inputs)[0].argmax(1) == labels))

    return run_ranks(ranks, work)[0]


@pytest.fixture
def training():
    return SimpleNamespace(
        alone=alone,
        together=together,
        network=made_network,
        distance=distance,
        accuracy=accuracy,
        Phase=Phase,
        Still=Still,
        sizes=SIZES,
    )


class Toy(Executor):
    """Parameters without a computation: tests supply the gradients."""

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
    """The state of a rank after the last step."""

    parameters: dict[str, Any]
    averaged: dict[str, Any] | None
    notes: dict[str, list[float]]
    stepper: Any = field(repr=False)


def start(rank):
    """Parameters of two shapes, different on each rank to reveal a missing broadcast."""
    return {"w": np.linspace(1, 2, 6).reshape(2, 3) + rank, "b": np.array([0.5, -0.5]) - rank}


def towards(rank, parameters, step):
    """The gradient of ½‖x - target‖² with the rank's own target."""
    return {name: each - (rank + 1) for name, each in parameters.items()}


@dataclass(frozen=True)
class Play:
    """Train with a scheme on ranks in threads; returns the final state of each."""

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
        """``meet``: the number of steps between meetings; ``after(rank, step, stepper)`` is called after each step."""
        gradient, optimizer = gradient or self.gradient, optimizer or SGD(0.1)

        def work(communicator):
            rank, executor = communicator.rank, Toy(start(communicator.rank))
            worker = Worker(communicator, NumpyBackend(), executor, optimizer, seed=3, clock=clock)
            stepper, workers = scheme.start(worker), scheme.workers(size)
            averaged = None
            for first in range(1, steps + 1, meet or steps):
                last = min(steps, first + (meet or steps) - 1)
                # More serve calls than meetings: some workers start the next stretch before others end this one.
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
    """The initial parameters of all ranks: rank 0's."""
    return start(0)
