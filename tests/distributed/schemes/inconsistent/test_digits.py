from functools import cache

import numpy as np
import pytest

from levelbench.distributed.communicators.threads import run_ranks
from levelbench.distributed.scheme import Worker
from levelbench.distributed.schemes.gossip import Gossip
from levelbench.distributed.schemes.neighbours import Neighbours
from levelbench.distributed.schemes.parameter_server import AsynchronousParameterServer, StaleSynchronous
from levelbench.distributed.schemes.periodic import DiLoCo, LocalSGD, ModelAveraging
from levelbench.frameworks.numpy.backend import NumpyBackend
from levelbench.networks import zoo
from levelbench.training import Momentum, Shuffled, datasets
from levelbench.training.input import make_loader
from levelbench.training.samplers import Partitioned

EPOCHS, RANKS, LEAST = 6, 4, 0.93
"""One process reaches 0.958 to 0.967 on the validation split (three seeds); a scheme may lose three points to that."""


@cache
def data():
    return datasets.digits.load()


def accuracy(scheme):
    """Rank 0's, of what the scheme evaluates."""
    network, dataset = zoo.mlp(64, 64, 10), data()

    def work(communicator):
        backend, rank, workers = NumpyBackend(), communicator.rank, scheme.workers(RANKS)
        executor = backend.executor(network.with_loss(), network.initialise(rank))
        stepper = scheme.start(Worker(communicator, backend, executor, Momentum(0.05, 0.9)))
        loader = make_loader(
            backend, dataset, dataset.train, Partitioned(Shuffled(64), min(rank, workers - 1), workers), seed=1
        )
        step = 0
        for epoch in range(EPOCHS):
            if rank >= workers:
                stepper.serve(step + 1, step + loader.steps, lambda step: 1.0)
                step += loader.steps
            for columns in loader.batches(epoch, 0, loader.steps, 0.0) if rank < workers else ():
                step += 1
                stepper.share = 1 / workers
                _, gradients = executor.infer_and_backprop(*columns)
                stepper.step(gradients, step, 1.0)
        stepper.meet()
        if rank < workers:
            executor.parameters.update(stepper.averaged())
        inputs, labels = dataset.validation.columns
        return float(np.mean(executor.infer(inputs)[0].argmax(1) == labels))

    return run_ranks(RANKS, work)[0]


@pytest.mark.parametrize(
    "scheme",
    [
        AsynchronousParameterServer(),
        StaleSynchronous(),
        ModelAveraging(),
        LocalSGD(),
        DiLoCo(),
        Neighbours(),
        Neighbours(graph="one-peer", mix="after"),
        Gossip(),
    ],
    ids=repr,
)
def test_digits_are_learned(scheme):
    assert accuracy(scheme) >= LEAST
